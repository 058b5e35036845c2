// What is like std::atomic and operator new, for the code that is explored.
#include <gtest/gtest.h>

#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explorer {
namespace {

// What a constructor that throws leaves is nobody's to delete, and no leak.
TEST(ExploredObjects, AnObjectThatCannotBeMadeIsNoLeak) {
  struct Refuses {
    Sync::Atomic<int> member{1};
    Refuses() { throw 3; }
  };
  const Result result = Explore({.name = "refuses"}, [](Execution& execution) {
    execution.Thread([] {
      try {
        Sync::New<Refuses>();
        Check(false, "it throws");
      } catch (int) {
      }
    });
  });
  EXPECT_TRUE(result.passed()) << result.report();
}

TEST(ExploredObjects, XorAssigns) {
  const Result result = Explore({.name = "xor"}, [](Execution& execution) {
    execution.Thread([] {
      Sync::Atomic<int> bits{6};
      Check((bits ^= 3) == 5 && bits.load() == 5, "as of std::atomic");
    });
  });
  EXPECT_TRUE(result.passed()) << result.report();
}

}  // namespace
}  // namespace tidepool::explorer
