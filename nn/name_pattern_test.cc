#include "tidepool/nn/name_pattern.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

TEST(NamePattern, MeansNamesAndWhatIsBehindADot) {
  EXPECT_TRUE(MatchesPattern("stem", "stem"));
  EXPECT_TRUE(MatchesPattern("stem", "stem.filter"));
  EXPECT_FALSE(MatchesPattern("stem", "stems.filter"));
  EXPECT_FALSE(MatchesPattern("stem.filter", "stem"));
  EXPECT_FALSE(MatchesPattern("tem", "stem"));
  EXPECT_FALSE(MatchesPattern("", "stem"));
  EXPECT_TRUE(MatchesPattern("*", "stem"));
  EXPECT_TRUE(MatchesPattern("*.bias", "block1.first.bias"));
  EXPECT_FALSE(MatchesPattern("*.bias", "block1.first.biases"));
  EXPECT_TRUE(MatchesPattern("block?.*.bias", "block1.first.bias"));
  EXPECT_FALSE(MatchesPattern("block?.*.bias", "block12.first.bias"));
  EXPECT_TRUE(MatchesPattern("block*first", "block12.a.first.bias"));
  EXPECT_TRUE(MatchesPattern("*ab*ab", "aabbab.x"));
  EXPECT_FALSE(MatchesPattern("*ab*abc", "aabbab.x"));
  EXPECT_TRUE(MatchesPattern("**", "x"));
  EXPECT_FALSE(MatchesPattern("?", ""));
  EXPECT_FALSE(MatchesPattern("[ab]", "a"));  // no sets of characters
}

TEST(NamePattern, OneThatMeansNothingIsAMistake) {
  const std::vector<std::string> names = {"stem.filter", "stem.bias", "out.weight"};
  EXPECT_EQ(MatchNames(std::vector<std::string>{"*.bias", "out"}, names, "x"),
            (std::vector<bool>{false, true, true}));
  EXPECT_EQ(MatchNames({}, names, "x"), std::vector<bool>(3, false));
  EXPECT_EQ(CatchStatus([&] {
              MatchNames(std::vector<std::string>{"stem", "head"}, names, "here");
            }).message(),
            "here: pattern \"head\" matches none of 3 parameters, expected one as stem.filter, "
            "stem.bias, out.weight");
}

// A pattern of stars against a long name ends at once: each star is given up when the next one is
// reached.
TEST(NamePattern, ManyStarsAreNoWork) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(MatchesPattern(pattern + "b", std::string(5000, 'a')));
  EXPECT_TRUE(MatchesPattern(pattern, std::string(5000, 'a')));
}

}  // namespace
}  // namespace tidepool::nn
