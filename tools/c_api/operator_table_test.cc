#include "tidepool/tools/c_api/operator_table.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/op_code.h"

namespace tidepool::c_api {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Operators of the list that have no name here: gradients of what networks train, which Trainer computes, and what the
// library's functions use among themselves.
const std::set<std::string> kNotOffered = {"absolute_error_grad", "attention_grad",
                                           "average_pool2d_grad", "batch_norm_grad",
                                           "batch_norm_running",  "binary_cross_entropy_grad",
                                           "conv2d_grad_filter",  "conv2d_grad_input",
                                           "conv3d_grad_filter",  "conv3d_grad_input",
                                           "ctc_loss_grad",       "dense_cross_entropy_grad",
                                           "elementwise_chain",   "group_norm_grad",
                                           "gru_cell_grad",       "huber_error_grad",
                                           "layer_norm_grad",     "lstm_cell_grad",
                                           "max_pool2d_grad",     "resize2d_grad",
                                           "rms_norm_grad",       "softmax_cross_entropy_grad",
                                           "squared_error_grad"};

TEST(OperatorTable, HasEveryOperatorOfTheListButThoseThatAreNamed) {
  std::vector<std::string> missing, wrongly_named;
  for (int code = 0; code < kOpCodes; ++code) {
    const std::string name = Info(static_cast<OpCode>(code)).name;
    const bool is_there = FindNamedOperator(name) != nullptr;
    if (!is_there && !kNotOffered.contains(name)) missing.push_back(name);
    if (is_there && kNotOffered.contains(name)) wrongly_named.push_back(name);
  }
  EXPECT_THAT(missing, IsEmpty());
  EXPECT_THAT(wrongly_named, IsEmpty());
}

TEST(OperatorTable, NamesAreOncePerOperator) {
  const std::vector<NamedOperator>& table = NamedOperators();
  const auto twice = std::adjacent_find(
      table.begin(), table.end(),
      [](const NamedOperator& a, const NamedOperator& b) { return a.name == b.name; });
  EXPECT_TRUE(twice == table.end()) << twice->name;
  EXPECT_EQ(FindNamedOperator("no_such"), nullptr);
}

// As the list has them: what an operator of both takes and gives.
TEST(OperatorTable, OperandsAreThoseOfTheList) {
  for (const NamedOperator& named : NamedOperators()) {
    const std::optional<OpCode> op = FindOperator(named.name);
    if (!op.has_value()) continue;
    const OperandCount inputs = CountOperandsOf(named.inputs),
                       outputs = CountOperandsOf(named.outputs);
    // Numbers that a captured step reads from an array are the updaters'; scatter's function takes the target too.
    const std::set<std::string> kOthers = {"sgd_update",      "nesterovs_update", "adagrad_update",
                                           "rms_prop_update", "adam_update",      "scatter"};
    if (!kOthers.contains(named.name))
      EXPECT_EQ(inputs.most, static_cast<size_t>(Info(*op).input_count)) << named.name;
    EXPECT_EQ(outputs.most, static_cast<size_t>(Info(*op).output_count)) << named.name;
  }
}

TEST(OperatorTable, DescribesAttributesOfAll) {
  for (const NamedOperator& named : NamedOperators()) {
    JsonWriter json;
    json.BeginArray();
    Attributes description(&json);
    ASSERT_NO_THROW(named.prepare(description)) << named.name;
    json.EndArray();
    // Each that has a default may be left out.
    const std::string text = std::move(json).Take();
    if (text.find("{\"name\"") != std::string::npos &&
        text.find("\"default\"") == std::string::npos)
      continue;
    bool all_have_defaults = true;
    for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
      all_have_defaults =
          all_have_defaults &&
          text.substr(at, text.find('}', at) - at).find("\"default\"") != std::string::npos;
    }
    if (!all_have_defaults) continue;
    Attributes none("operator", nullptr);
    EXPECT_NO_THROW(named.prepare(none)) << named.name << " " << text;
  }
}

std::string MessageOf(const char* json, void (*read)(Attributes&)) {
  try {
    Attributes attributes("operator [x]", json);
    read(attributes);
    attributes.CheckAllRead();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Attributes, WhatIsWrongIsNamed) {
  const auto none = [](Attributes&) {};
  EXPECT_EQ(MessageOf(nullptr, none), "");
  EXPECT_EQ(MessageOf("", none), "");
  EXPECT_EQ(MessageOf("{}", none), "");
  for (const char* text : {"[]", "1", "{", "{\"a\":}", "nan", "\xff"})
    EXPECT_THAT(MessageOf(text, none), HasSubstr("expected a JSON object")) << text;
  EXPECT_EQ(MessageOf("{\"a\": 1}", none), "operator [x]: no attribute [a]; there are none");
  const auto ints = [](Attributes& a) { a.Int("i", 3); };
  for (const char* value : {"1.5", "\"1\"", "true", "null", "[1]", "9223372036854775808"}) {
    EXPECT_THAT(MessageOf(("{\"i\": " + std::string(value) + "}").c_str(), ints),
                HasSubstr("attribute [i] is "))
        << value;
  }
  EXPECT_EQ(MessageOf("{\"i\": 9223372036854775807}", ints), "");
  for (const char* value : {"9223372036854775808", "123456789012345678901234567890"}) {
    EXPECT_THAT(MessageOf(("{\"i\": " + std::string(value) + "}").c_str(), ints),
                HasSubstr("expected a whole number of at most 64 bits"));
  }
  EXPECT_THAT(MessageOf("{\"i\": 1e400}", ints), HasSubstr("expected numbers that float64 has"));
  EXPECT_EQ(MessageOf("{\"i\": 1, \"j\": 2, \"i\": 3}", ints),
            "operator [x]: attribute [i] is there twice, expected once");
  const auto size = [](Attributes& a) { a.Size("i", 1); };
  EXPECT_EQ(MessageOf("{\"i\": 9223372036854775807}", size), "");
  EXPECT_THAT(MessageOf("{\"i\": 9223372036854775808}", size),
              HasSubstr("expected at most 9223372036854775807"));
  EXPECT_THAT(MessageOf("{\"axis\": 3000000000}", [](Attributes& a) { a.Axis("axis"); }),
              HasSubstr("expected an axis"));
  EXPECT_THAT(MessageOf("{\"n\": -1}", [](Attributes& a) { a.Unsigned("n"); }),
              HasSubstr("expected a whole number from 0"));
  EXPECT_THAT(MessageOf("{\"t\": \"f31\"}", [](Attributes& a) { a.Type("t"); }),
              HasSubstr("expected one of f32, i64"));
  EXPECT_THAT(MessageOf("{}", [](Attributes& a) { a.Ints("dims", Attributes::Absent::kIsError); }),
              HasSubstr("[dims] is missing"));
  EXPECT_THAT(MessageOf("{\"p\": [1, 2, 3]}", [](Attributes& a) { a.IntsPerAxis("p", 2, 0); }),
              HasSubstr("expected 1 or 2 whole numbers"));
  EXPECT_THAT(MessageOf("{\"shape\": [-1]}", [](Attributes& a) { a.Shape("shape"); }),
              HasSubstr("-1"));
}

TEST(Attributes, WhatTheCallerGaveIsShownInPartAndInText) {
  EXPECT_EQ(Shown("axis"), "axis");
  EXPECT_EQ(Shown(std::string("a\0\n\xff", 4)), "a\\u0000\\n\xef\xbf\xbd");
  EXPECT_EQ(Shown(std::string(201, 'n')), std::string(200, 'n') + "...");
  std::string umlauts = "n";
  for (int i = 0; i < 100; ++i) umlauts += "\xc3\xa4";  // the last one begins at byte 199
  EXPECT_EQ(Shown(umlauts), umlauts.substr(0, 199) + "...");
}

TEST(Attributes, NumbersMayBeInfinite) {
  Attributes attributes("x", "{\"a\": \"-inf\", \"b\": 2, \"c\": [1, 2.5, \"inf\"]}");
  EXPECT_EQ(attributes.Number("a"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(attributes.Number("b"), 2);
  EXPECT_EQ(attributes.Numbers("c").size(), 3u);
  EXPECT_EQ(attributes.Number("d", 0.5), 0.5);
  EXPECT_TRUE(std::isnan(Attributes("x", "{\"a\": \"nan\"}").Number("a")));
  // Whole numbers are never, and JSON has no literals for them.
  EXPECT_THAT(MessageOf("{\"i\": \"inf\"}", [](Attributes& a) { a.Int("i"); }),
              HasSubstr("attribute [i] is \"inf\", expected a whole number"));
  EXPECT_THAT(MessageOf("{\"n\": \"Infinity\"}", [](Attributes& a) { a.Number("n"); }),
              HasSubstr("attribute [n] is \"Infinity\", expected a number"));
  for (const char* value : {"NaN", "Infinity", "-Infinity"}) {
    EXPECT_THAT(MessageOf(("{\"n\": " + std::string(value) + "}").c_str(),
                          [](Attributes& a) { a.Number("n"); }),
                HasSubstr("these are \"nan\", \"inf\" and \"-inf\", with quotes"));
  }
}

}  // namespace
}  // namespace tidepool::c_api
