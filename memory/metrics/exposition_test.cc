// The format, written and read.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tidepool/memory/io/json_writer.h"
#include "tidepool/memory/metrics/exposition_parser.h"
#include "tidepool/memory/metrics/exposition_writer.h"

namespace tidepool {
namespace {

TEST(ExpositionWriter, WritesTheFormat) {
  ExpositionWriter text;
  text.Family("a_total", ExpositionWriter::Type::kCounter, "Back\\slash,\nline, \"quote\".");
  text.Sample({}, uint64_t{18446744073709551615u});
  text.Sample({{"x", "a\"b\\c\nd"}, {"none", ""}, {"y", std::string_view("\xff\0 caf\xc3\xa9", 8)}},
              int64_t{-3});
  text.Family("b", ExpositionWriter::Type::kGauge, "");
  text.Sample({}, 0.1);
  text.Sample({{"v", "inf"}}, std::numeric_limits<double>::infinity());
  text.Sample({{"v", "nan"}}, std::nan(""));
  const std::string written = std::move(text).Take();
  EXPECT_EQ(written,
            "# HELP a_total Back\\\\slash,\\nline, \"quote\".\n"
            "# TYPE a_total counter\n"
            "a_total 18446744073709551615\n"
            "a_total{x=\"a\\\"b\\\\c\\nd\",y=\"\\\\xff\\\\x00 caf\xc3\xa9\"} -3\n"
            "# HELP b \n"
            "# TYPE b gauge\n"
            "b 0.10000000000000001\n"
            "b{v=\"inf\"} +Inf\n"
            "b{v=\"nan\"} NaN\n");
  const Exposition read = ExpositionParser::Parse(written);
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.families.at("a_total").help, "Back\\slash,\nline, \"quote\".");
  EXPECT_EQ(read.Value("a_total", {{"x", "a\"b\\c\nd"}, {"y", "\\xff\\x00 caf\xc3\xa9"}}), -3);
}

TEST(ExpositionWriter, WritesHistograms) {
  ExpositionWriter text;
  text.Family("t_seconds", ExpositionWriter::Type::kHistogram, "");
  text.Histogram({{"x", "y"}}, std::vector<double>{0.001, 0.25, 10},
                 std::vector<int64_t>{1, 2, 0, 4}, 41.5);
  const std::string written = std::move(text).Take();
  EXPECT_EQ(written,
            "# HELP t_seconds \n"
            "# TYPE t_seconds histogram\n"
            "t_seconds_bucket{x=\"y\",le=\"0.001\"} 1\n"
            "t_seconds_bucket{x=\"y\",le=\"0.25\"} 3\n"
            "t_seconds_bucket{x=\"y\",le=\"10\"} 3\n"
            "t_seconds_bucket{x=\"y\",le=\"+Inf\"} 7\n"
            "t_seconds_sum{x=\"y\"} 41.5\n"
            "t_seconds_count{x=\"y\"} 7\n");
  const Exposition read = ExpositionParser::Parse(written);
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.Value("t_seconds_bucket", {{"x", "y"}, {"le", "0.25"}}), 3);
  EXPECT_NE(ExpositionParser::Parse("# TYPE a gauge\na_sum 1\n").error, "");
}

// The bytes that a label was written for.
std::string BytesOf(const std::string& value) {
  std::string bytes;
  for (size_t i = 0; i < value.size(); ++i) {
    if (value.compare(i, 2, "\\x") == 0) {
      bytes += static_cast<char>(std::stoi(value.substr(i + 2, 2), nullptr, 16));
      i += 3;
    } else {
      bytes += value[i];
    }
  }
  return bytes;
}

TEST(ExpositionWriter, DifferentBytesAreDifferentLabels) {
  std::vector<std::string> values = {std::string("a\0b", 3),
                                     std::string(1, '\0'),
                                     "a\\x00b",
                                     "\xff",
                                     "\\xff",
                                     "\\\\xff",
                                     "\\x5cxff",
                                     "\\x5c",
                                     "\xff\xff",
                                     "\xff\\xff",
                                     "\\xc3\xa9",
                                     "\xc3\xa9",
                                     "\xa9\xc3",
                                     "\\\xff",
                                     "x\\",
                                     "\"\xfe\"",
                                     "\\x"};
  // All texts of six pieces, with what could be mistaken for one another.
  const std::string pieces[] = {"\\", "x", "5", "c", "f", "\xff"};
  for (int n = 0; n < 6 * 6 * 6 * 6 * 6 * 6; ++n) {
    std::string value;
    for (int i = 0, rest = n; i < 6; ++i, rest /= 6) value += pieces[rest % 6];
    values.push_back(value);
  }
  ExpositionWriter text;
  text.Family("a", ExpositionWriter::Type::kGauge, "");
  for (const std::string& value : values) text.Sample({{"x", value}}, int64_t{1});
  const Exposition read = ExpositionParser::Parse(std::move(text).Take());
  EXPECT_EQ(read.error, "");
  std::set<std::string> found;
  for (const auto& sample : read.families.at("a").samples) {
    const std::string& value = sample.first.at("x");
    EXPECT_TRUE(IsUtf8(value)) << value;
    found.insert(BytesOf(value));
  }
  EXPECT_EQ(found, std::set<std::string>(values.begin(), values.end()));
}

TEST(ExpositionParser, RefusesWhatScrapersRefuse) {
  const std::string head = "# HELP a A.\n# TYPE a gauge\n";
  EXPECT_EQ(ExpositionParser::Parse(head + "a{b=\"c\"} 1\n").error, "");
  for (const char* wrong : {"a{b=\"c\"} 1", "a{b=\"c} 1\n", "a{b=\"c\"}1\n", "a{b=\"c\\x\"} 1\n",
                            "a 1\na 1\n", "b 1\n", "a{1=\"c\"} 1\n", "a x\n", "\n",
                            "# TYPE a gauge\n", "# HELP a B.\n", "a{b=\"c\",b=\"d\"} 1\n"}) {
    EXPECT_NE(ExpositionParser::Parse(head + wrong).error, "") << wrong;
  }
}

}  // namespace
}  // namespace tidepool
