// Tests in which run_all.py finds what GoogleTest itself prints: some pass, some fail, one is skipped, and one fails in the
// first process that runs it, which the file $MARK tells.
#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace {

TEST(Real, Wrong) { EXPECT_EQ(1, 2) << "a sum that is wrong"; }
TEST(Real, Skipped) { GTEST_SKIP() << "played"; }
TEST(Real, DISABLED_Never) { FAIL(); }
TEST(Real, Flaky) {
  const char* mark = std::getenv("MARK");
  ASSERT_NE(mark, nullptr);
  const bool first = !std::ifstream(mark).good();
  std::ofstream(mark) << 1;
  EXPECT_FALSE(first);
}

class Parameters : public testing::TestWithParam<std::string> {};
TEST_P(Parameters, Wrong) { EXPECT_EQ(GetParam(), "a word"); }
INSTANTIATE_TEST_SUITE_P(Values, Parameters, testing::Values("a word", "another word"));

// More tests than groups, so that some share a process with those that fail.
class Many : public testing::TestWithParam<int> {};
TEST_P(Many, Pass) {}
INSTANTIATE_TEST_SUITE_P(Many, Many, testing::Range(0, 13));

}  // namespace
