#include "tidepool/memory/io/testing/byte_mutator.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidepool {
namespace {

TEST(ByteMutator, SameSeedSameCases) {
  ByteMutator a(7, {"hello world 12", "other"}), b(7, {"hello world 12", "other"}),
      c(8, {"hello world 12"});
  int differ_from_c = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string next = a.Next();
    EXPECT_EQ(next, b.Next());
    differ_from_c += next != c.Next();
  }
  EXPECT_GT(differ_from_c, 50);
}

TEST(ByteMutator, ManyDifferentCasesUnderTheCap) {
  ByteMutator mutator(FuzzSeed(), {std::string(60, 'x'), ""}, 64);
  std::set<std::string> cases;
  for (int i = 0; i < 2000; ++i) {
    cases.insert(mutator.Next());
    EXPECT_LE(cases.rbegin()->size(), 64u);
  }
  EXPECT_GT(cases.size(), 800u);
  size_t shorter = 0, same = 0;
  for (const std::string& bytes : cases) {
    shorter += bytes.size() < 60;
    same += bytes.size() == 60;
  }
  EXPECT_GT(shorter, 100u);
  EXPECT_GT(same, 100u);
}

}  // namespace
}  // namespace tidepool
