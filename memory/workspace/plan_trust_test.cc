#include "tidepool/memory/workspace/plan_trust.h"

#include "gtest/gtest.h"

namespace tidepool {
namespace {

TEST(PlanTrust, WithholdsPlansWhereFewCyclesAreKnownAndTriesThemEverMoreRarely) {
  PlanTrust trust;
  for (int i = 0; i < 63; ++i) trust.Saw(false);
  EXPECT_FALSE(trust.doubts());
  trust.Saw(false);
  EXPECT_TRUE(trust.withholds());
  const auto tries = [&trust](int cycles) {
    int tried = 0;
    for (; cycles > 0; --cycles) {
      tried += !trust.withholds();
      trust.Saw(false);
    }
    return tried;
  };
  EXPECT_EQ(tries(64 + 128 + 256 + 3), 3);
  EXPECT_LE(tries(10000), 7);
  EXPECT_EQ(tries(8192), 2);
  // Of what is known one time in five and less it stays so, of what is more often it does not.
  for (int i = 0; i < 4000; ++i) trust.Saw(i % 6 == 0);
  EXPECT_TRUE(trust.doubts());
  for (int i = 0; i < 400; ++i) trust.Saw(i % 3 == 0);
  EXPECT_FALSE(trust.doubts());
}

TEST(PlanTrust, KnowsWhatCameBehindWhat) {
  PlanTrust trust;
  EXPECT_FALSE(trust.CameBehind(1, 2));
  EXPECT_TRUE(trust.CameBehind(1, 2));
  EXPECT_FALSE(trust.CameBehind(1, 3));
  EXPECT_FALSE(trust.CameBehind(2, 3));
  EXPECT_TRUE(trust.CameBehind(1, 3));
}

}  // namespace
}  // namespace tidepool
