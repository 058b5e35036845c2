// How long what is unused is kept.
#include "tidepool/memory/workspace/retention.h"

#include "gtest/gtest.h"

namespace tidepool {
namespace {

TEST(Retention, LongerWhereItIsAskedForAgain) {
  Retention retention(2, 8);
  const auto idle = [&](int uses) {
    for (int i = 0; i < uses; ++i) retention.EndUse(false, false);
  };
  retention.EndUse(/*asked=*/true, /*gave_back=*/false);
  EXPECT_EQ(retention.uses(), 2);
  for (const int expected : {4, 8, 8}) {
    retention.EndUse(false, true);
    idle(2 * Retention::kJudged - 1);
    retention.EndUse(true, false);
    EXPECT_EQ(retention.uses(), expected);
    retention.EndUse(true, false);
    EXPECT_EQ(retention.uses(), expected) << "once each time";
  }
  idle(1000);
  EXPECT_EQ(retention.uses(), 8) << "nothing went";
  for (const int expected : {4, 2, 2}) {
    retention.EndUse(false, true);
    idle(8 * Retention::kJudged);
    EXPECT_EQ(retention.uses(), expected);
  }
}

}  // namespace
}  // namespace tidepool
