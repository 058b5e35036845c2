#include "tidepool/memory/io/append_format.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdio>
#include <string>

#include "tidepool/memory/io/testing/decimal_comma.h"

namespace tidepool {
namespace {

TEST(AppendFormat, AppendsWhatPrintfPrints) {
  std::string text = "before ";
  AppendFormat(&text, "%-6s|%+4d|%5.1f%%", "ab", 7, 2.25);
  EXPECT_EQ(text, "before ab    |  +7|  2.2%");
  AppendFormat(&text, "%s", "");
  EXPECT_EQ(text, "before ab    |  +7|  2.2%");
}

TEST(AppendFormat, TextsOfAnyLength) {
  for (const size_t length : {198, 199, 200, 201, 5000}) {
    const std::string name(length, 'x');
    std::string text = "<";
    AppendFormat(&text, "%s%d", name.c_str(), 5);
    EXPECT_EQ(text, "<" + name + "5") << length;
  }
}

TEST(AppendNumbers, AreThoseOfPrintf) {
  for (const double value : {0.0, -0.0, 1.0, -1.5, 0.1, 1e-7, 123456.789, 1e15, 1e17, -1e300,
                             DBL_MAX, DBL_MIN, DBL_TRUE_MIN, HUGE_VAL}) {
    char expected[400];
    std::string text;
    AppendFixed(&text, value, 6);
    std::snprintf(expected, sizeof expected, "%.6f", value);
    EXPECT_EQ(text, expected);
    text.clear();
    AppendGeneral(&text, value, 17);
    std::snprintf(expected, sizeof expected, "%.17g", value);
    EXPECT_EQ(text, expected);
  }
}

TEST(AppendNumbers, HaveAPointInAnyLocale) {
  const DecimalCommaScope comma;
  if (!comma.is_set()) GTEST_SKIP() << "there is no C.UTF-8";
  std::string text;
  AppendFormat(&text, "%.1f ", 0.5);
  AppendFixed(&text, 0.5, 1);
  AppendGeneral(&text, 0.5, 17);
  EXPECT_EQ(text, "0,5 0.50.5");
}

}  // namespace
}  // namespace tidepool
