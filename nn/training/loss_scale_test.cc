#include "tidepool/nn/training/loss_scale.h"

#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

TEST(LossScale, GrowsAfterGoodStepsAndHalvesAtOverflow) {
  LossScale scale({.first = 8, .growth_interval = 3});
  EXPECT_TRUE(scale.Observe(true));
  EXPECT_TRUE(scale.Observe(true));
  EXPECT_EQ(scale.scale(), 8);
  EXPECT_TRUE(scale.Observe(true));
  EXPECT_EQ(scale.scale(), 16);
  EXPECT_EQ(scale.good_steps(), 0);
  scale.Observe(true);
  scale.Observe(true);
  EXPECT_FALSE(scale.Observe(false));  // the count begins anew
  EXPECT_EQ(scale.scale(), 8);
  scale.Observe(true);
  scale.Observe(true);
  EXPECT_EQ(scale.scale(), 8);
  scale.Observe(true);
  EXPECT_EQ(scale.scale(), 16);
  EXPECT_EQ(scale.skipped(), 1);
  EXPECT_EQ(scale.ToString(), "loss scale 16, 0 good steps, 1 skipped");
}

// What PyTorch's GradScaler does: loss_scale_values.py.
TEST(LossScale, GoesAsPyTorchs) {
  std::ifstream file("nn/training/loss_scale_values.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream text(line);
    LossScaleConfig config;
    std::string steps;
    text >> config.first >> config.growth >> config.backoff >> config.growth_interval >> steps;
    LossScale scale(config);
    int64_t skipped = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      double expected = 0;
      text >> expected;
      ASSERT_NE(expected, 0) << line;
      const bool is_done = scale.Observe(steps[i] == '.');
      EXPECT_EQ(is_done ? scale.scale() : -scale.scale(), expected) << line << ", step " << i;
      skipped += is_done ? 0 : 1;
    }
    EXPECT_EQ(scale.skipped(), skipped);
    EXPECT_FALSE(scale.has_diverged());
  }
  EXPECT_EQ(cases, 4);
}

TEST(LossScale, AnOverflowAtTheLeastScaleIsDivergence) {
  LossScale scale({.first = 4, .growth_interval = 2, .least = 1, .diverges_after = 2});
  for (const double expected : {2, 1, 1}) {
    scale.Observe(false);
    EXPECT_EQ(scale.scale(), expected);
    EXPECT_FALSE(scale.has_diverged());
  }
  scale.Observe(true);  // not running
  scale.Observe(false);
  EXPECT_EQ(scale.stuck(), 1);
  LossScale resumed(scale.config());
  resumed.Restore(scale.scale(), scale.good_steps(), scale.skipped(), scale.stuck());
  EXPECT_EQ(scale, resumed);
  scale.Observe(false);
  EXPECT_TRUE(scale.has_diverged());
  EXPECT_EQ(scale.skipped(), 5);
}

TEST(LossScale, StaysBetweenItsEnds) {
  LossScale scale({.first = 4, .growth_interval = 1, .most = 8, .least = 2});
  for (int i = 0; i < 5; ++i) scale.Observe(true);
  EXPECT_EQ(scale.scale(), 8);
  for (int i = 0; i < 5; ++i) scale.Observe(false);
  EXPECT_EQ(scale.scale(), 2);
  LossScale constant(LossScale::Constant(128));
  for (int i = 0; i < 15; ++i) constant.Observe(false);
  EXPECT_EQ(constant.scale(), 128);
  EXPECT_EQ(constant.skipped(), 15);
  EXPECT_FALSE(constant.has_diverged());
  constant.Observe(false);
  EXPECT_TRUE(constant.has_diverged());
}

TEST(LossScale, GoesOnWhereItWas) {
  LossScale scale({.growth_interval = 5}), resumed({.growth_interval = 5});
  for (int i = 0; i < 8; ++i) scale.Observe(i != 2);
  resumed.Restore(scale.scale(), scale.good_steps(), scale.skipped());
  EXPECT_EQ(scale, resumed);
  for (int i = 0; i < 8; ++i) scale.Observe(true), resumed.Observe(true);
  EXPECT_EQ(scale, resumed);
  EXPECT_EQ(scale.scale(), 131072);
}

TEST(LossScale, NumbersAreChecked) {
  const auto message = [](const LossScaleConfig& config) {
    return std::string(CatchStatus([&] { LossScale scale(config); }).message());
  };
  EXPECT_EQ(message({.growth = 0.5}), "loss scale: growth 0.5, expected at least 1");
  EXPECT_EQ(message({.backoff = 0}), "loss scale: backoff 0, expected more than 0, at most 1");
  EXPECT_EQ(message({.growth_interval = 0}), "loss scale: growth_interval 0, expected at least 1");
  EXPECT_EQ(message({.first = 0.5}), "loss scale: first 0.5, expected `least` to `most`");
  EXPECT_EQ(message({.most = 0.5}), "loss scale: most 0.5, expected at least `least`");
  EXPECT_EQ(message({.least = 0}), "loss scale: least 0, expected more than 0");
  LossScale scale;
  EXPECT_EQ(CatchStatus([&] { scale.Restore(0, 0, 0); }).message(),
            "loss scale: scale 0, expected more than 0");
}

}  // namespace
}  // namespace tidepool::nn
