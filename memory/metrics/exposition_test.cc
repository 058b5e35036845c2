// The format, written and read.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "tidepool/memory/metrics/exposition_parser.h"
#include "tidepool/memory/metrics/exposition_writer.h"

namespace tidepool {
namespace {

TEST(ExpositionWriter, WritesTheFormat) {
  ExpositionWriter text;
  text.Family("a_total", ExpositionWriter::Type::kCounter, "Back\\slash,\nline, \"quote\".");
  text.Sample({}, uint64_t{18446744073709551615u});
  text.Sample({{"x", "a\"b\\c\nd"}, {"none", ""}, {"y", "\xff caf\xc3\xa9"}}, int64_t{-3});
  text.Family("b", ExpositionWriter::Type::kGauge, "");
  text.Sample({}, 0.1);
  text.Sample({{"v", "inf"}}, std::numeric_limits<double>::infinity());
  text.Sample({{"v", "nan"}}, std::nan(""));
  const std::string written = std::move(text).Take();
  EXPECT_EQ(written,
            "# HELP a_total Back\\\\slash,\\nline, \"quote\".\n"
            "# TYPE a_total counter\n"
            "a_total 18446744073709551615\n"
            "a_total{x=\"a\\\"b\\\\c\\nd\",y=\"\\\\xff caf\\\\xc3\\\\xa9\"} -3\n"
            "# HELP b \n"
            "# TYPE b gauge\n"
            "b 0.10000000000000001\n"
            "b{v=\"inf\"} +Inf\n"
            "b{v=\"nan\"} NaN\n");
  const Exposition read = ExpositionParser::Parse(written);
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.families.at("a_total").help, "Back\\slash,\nline, \"quote\".");
  EXPECT_EQ(read.Value("a_total", {{"x", "a\"b\\c\nd"}, {"y", "\\xff caf\\xc3\\xa9"}}), -3);
}

TEST(ExpositionParser, RefusesWhatScrapersRefuse) {
  const std::string head = "# HELP a A.\n# TYPE a gauge\n";
  EXPECT_EQ(ExpositionParser::Parse(head + "a{b=\"c\"} 1\n").error, "");
  for (const char* wrong : {"a{b=\"c\"} 1", "a{b=\"c} 1\n", "a{b=\"c\"}1\n", "a{b=\"c\\x\"} 1\n",
                            "a 1\na 1\n",
                            "b 1\n", "a{1=\"c\"} 1\n", "a x\n", "\n", "# TYPE a gauge\n",
                            "# HELP a B.\n", "a{b=\"c\",b=\"d\"} 1\n"}) {
    EXPECT_NE(ExpositionParser::Parse(head + wrong).error, "") << wrong;
  }
}

}  // namespace
}  // namespace tidepool
