#include "tidepool/memory/io/json_writer.h"

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/testing/failing_new.h"

namespace tidepool {
namespace {

using Json = nlohmann::ordered_json;

std::string Example(int indent) {
  JsonWriter json(indent);
  json.BeginObject();
  json.Key("empty");
  json.BeginArray();
  json.EndArray();
  json.Key("nothing");
  json.BeginObject();
  json.EndObject();
  json.Key("sizes");
  json.BeginArray();
  json.Number(-1);
  json.Number(std::numeric_limits<uint64_t>::max());
  json.String("a \"quote\"\n");
  json.Literal("1.250");
  json.BeginObject();
  json.Member("last", std::numeric_limits<int64_t>::min());
  json.EndObject();
  json.EndArray();
  json.Member("name", "x");
  json.EndObject();
  return std::move(json).Take();
}

TEST(JsonWriter, WritesAsNlohmannDoes) {
  const Json expected = {{"empty", Json::array()},
                         {"nothing", Json::object()},
                         {"sizes",
                          {-1,
                           std::numeric_limits<uint64_t>::max(),
                           "a \"quote\"\n",
                           1.25,
                           {{"last", std::numeric_limits<int64_t>::min()}}}},
                         {"name", "x"}};
  const auto with_zero = [](std::string text) {
    return text.replace(text.find("1.25"), 4, "1.250");
  };
  EXPECT_EQ(Example(0), with_zero(expected.dump()));
  EXPECT_EQ(Example(2), with_zero(expected.dump(2)));
}

// Bytes at random, near what has rules of its own: nlohmann's answer is the right one.
TEST(JsonWriter, EscapesAndUtf8AreNlohmanns) {
  const unsigned char edges[] = {0x00, 0x1f, 0x20, 0x22, 0x5c, 0x7f, 0x80, 0x8f, 0x90, 0x9f,
                                 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed,
                                 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff, 'a',  '\n'};
  std::mt19937 random(20221122);
  int valid = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string text(random() % 6, ' ');
    for (char& c : text) {
      c = static_cast<char>(random() % 4 == 0 ? random() % 256
                                              : edges[random() % std::size(edges)]);
    }
    std::string found;
    AppendJsonString(text, &found);
    try {
      EXPECT_EQ(found, Json(text).dump());
      EXPECT_TRUE(IsUtf8(text));
      ++valid;
    } catch (const Json::exception&) {
      EXPECT_FALSE(IsUtf8(text));
      EXPECT_NE(found.find("\xEF\xBF\xBD"), std::string::npos);
      EXPECT_NO_THROW(Json::parse(found)) << found;
    }
  }
  EXPECT_GT(valid, 1000);
  EXPECT_LT(valid, 49000);
  for (uint32_t code = 0x80; code < 0x110000; ++code) {
    if (code == 0xd800) code = 0xe000;
    std::string text;
    if (code < 0x800) {
      text = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
    } else if (code < 0x10000) {
      text = {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
              static_cast<char>(0x80 | (code & 63))};
    } else {
      text = {static_cast<char>(0xf0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 63)),
              static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
    }
    ASSERT_TRUE(IsUtf8(text)) << code;
  }
}

TEST(JsonWriter, MemoryThatRunsOutIsAnExceptionAndNothingElse) {
  const std::string expected = Example(2);
  int faults = 0;
  for (;; ++faults) {
    std::string text;
    until_fault = faults;
    if (Try([&] { text = Example(2); })) {
      EXPECT_EQ(text, expected);
      break;
    }
    EXPECT_EQ(text, "");
  }
  EXPECT_GE(faults, 3);
}

}  // namespace
}  // namespace tidepool
