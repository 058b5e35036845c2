#include "tidepool/nn/training/listener.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/training/loss_scale.h"

namespace tidepool::nn {
namespace {

struct Heard : TrainingListener {
  void OnStep(const TrainingReport& report) override { steps.push_back(report); }
  void OnEpoch(const TrainingReport& report) override { epochs.push_back(report); }
  void OnEnd(const TrainingReport& report) override { ends.push_back(report); }
  std::vector<TrainingReport> steps, epochs, ends;
};

class TrainingWatchTest : public testing::Test {
 protected:
  TrainingWatch::Config Config(int64_t epochs, int64_t examples) {
    return {.epochs = epochs, .examples = examples, .clock = [this] { return now_; }};
  }
  void Step(TrainingWatch& watch, double seconds, int64_t examples, double loss) {
    now_ += seconds;
    watch.OnStep(examples, loss);
  }
  double now_ = 100;
};

TEST_F(TrainingWatchTest, TellsThroughputTimeLeftAndMeanLoss) {
  TrainingWatch watch(Config(3, 10));
  Heard heard;
  watch.Add(&heard);
  Step(watch, 2, 4, 1.0);
  EXPECT_EQ(heard.steps[0].step, 1);
  EXPECT_EQ(heard.steps[0].epoch, 1);
  EXPECT_EQ(heard.steps[0].examples, 4);
  EXPECT_EQ(heard.steps[0].loss, 1.0);
  EXPECT_EQ(heard.steps[0].examples_per_second, 2);
  EXPECT_EQ(heard.steps[0].seconds_left, 13);  // 26 examples at 2 a second
  EXPECT_EQ(heard.steps[0].memory_bytes, 0);
  Step(watch, 3, 6, 2.0);
  watch.OnEpoch(0.75);
  ASSERT_EQ(heard.epochs.size(), 1u);
  EXPECT_EQ(heard.epochs[0].epoch, 1);
  EXPECT_EQ(heard.epochs[0].examples, 10);
  EXPECT_NEAR(heard.epochs[0].loss, (4 * 1.0 + 6 * 2.0) / 10, 1e-15);
  EXPECT_EQ(heard.epochs[0].score, 0.75);
  EXPECT_EQ(heard.epochs[0].examples_per_second, 2);
  EXPECT_EQ(heard.epochs[0].seconds_left, 10);
  Step(watch, 1, 10, 3.0);
  EXPECT_EQ(heard.steps[2].epoch, 2);
  EXPECT_EQ(heard.steps[2].examples_per_second, 10);  // of this epoch
  EXPECT_NEAR(heard.steps[2].seconds_left, 6.0 / 20 * 10, 1e-12);
  watch.OnEpoch();
  now_ += 4;
  watch.OnEnd();
  ASSERT_EQ(heard.ends.size(), 1u);
  EXPECT_EQ(heard.ends[0].epoch, 2);
  EXPECT_EQ(heard.ends[0].step, 3);
  EXPECT_EQ(heard.ends[0].seconds, 10);
  EXPECT_EQ(heard.ends[0].seconds_left, 0);
}

TEST_F(TrainingWatchTest, MemoryIsTheLedgers) {
  TrainingWatch watch(Config(0, 0));
  Heard heard;
  watch.Add(&heard);
  const int64_t before = watch.report().memory_bytes;
  {
    const NDArray array = Zeros({1 << 18}, DType::kFloat32, Place::Heap());
    watch.OnEpoch();
    EXPECT_EQ(heard.epochs[0].memory_bytes - before, 1 << 20);
  }
  watch.OnEnd();
  EXPECT_EQ(heard.ends[0].memory_bytes, before);
  EXPECT_GE(heard.ends[0].memory_peak_bytes, before + (1 << 20));
  EXPECT_TRUE(std::isnan(heard.ends[0].loss));
}

TEST_F(TrainingWatchTest, WhatIsNotKnownIsNotGuessed) {
  TrainingWatch watch(Config(0, 10));
  Heard heard;
  watch.Add(&heard);
  Step(watch, 0, 5, 1);
  EXPECT_TRUE(std::isnan(heard.steps[0].seconds_left));
  EXPECT_EQ(heard.steps[0].examples_per_second, 0);
  watch.Remove(&heard);
  Step(watch, 1, 5, 1);
  EXPECT_EQ(heard.steps.size(), 1u);
}

TEST_F(TrainingWatchTest, GoesOnInTheMiddle) {
  TrainingWatch::Config config = Config(5, 10);
  config.first_step = 40, config.first_epoch = 5;
  TrainingWatch watch(config);
  Heard heard;
  watch.Add(&heard);
  Step(watch, 1, 5, 1);
  EXPECT_EQ(heard.steps[0].step, 41);
  EXPECT_EQ(heard.steps[0].epoch, 5);
  EXPECT_EQ(heard.steps[0].seconds_left, 1);
}

TEST_F(TrainingWatchTest, NumbersAndListenersAreChecked) {
  EXPECT_EQ(CatchStatus([&] { TrainingWatch watch(Config(-1, 0)); }).message(),
            "training watch: epochs -1, expected 0 or more");
  TrainingWatch watch(Config(0, 0));
  EXPECT_FALSE(CatchStatus([&] { watch.Add(nullptr); }).ok());
  EXPECT_FALSE(CatchStatus([&] { watch.OnStep(-1, 0); }).ok());
}

TEST_F(TrainingWatchTest, TellsTheLossScaleAndLeavesSkippedStepsOutOfTheMean) {
  LossScale scale({.first = 8, .growth_interval = 100});
  scale.Observe(false);  // before: of a run that is resumed
  TrainingWatch watch(Config(2, 30));
  Heard heard;
  std::FILE* const file = std::tmpfile();
  ProgressPrinter printer(file, 5);
  watch.Add(&heard);
  watch.Add(&printer);
  Step(watch, 1, 1, 9);
  EXPECT_TRUE(std::isnan(heard.steps[0].loss_scale));
  watch.set_loss_scale(&scale);
  scale.Observe(true);
  Step(watch, 1, 1, 3);
  EXPECT_EQ(heard.steps[1].loss_scale, 4);
  EXPECT_EQ(heard.steps[1].skipped, 1);
  scale.Observe(false);
  Step(watch, 4, 10, INFINITY);
  EXPECT_EQ(heard.steps[2].loss_scale, 2);
  EXPECT_EQ(heard.steps[2].skipped, 2);
  EXPECT_EQ(heard.steps[2].step, 3);
  EXPECT_EQ(heard.steps[2].examples, 12);
  watch.OnEpoch();
  EXPECT_EQ(heard.epochs[0].loss, 6);
  EXPECT_EQ(heard.epochs[0].loss_scale, 2);
  scale.Observe(true);
  Step(watch, 1, 2, 5);
  watch.OnEpoch();
  EXPECT_EQ(heard.epochs[1].loss, 5);
  std::rewind(file);
  char text[1000] = {};
  std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  EXPECT_THAT(
      std::string(text),
      testing::StartsWith("epoch 1 of 2, step 3: loss inf, loss scale 2, 2 skipped, 2 examples/s"));
  EXPECT_THAT(std::string(text),
              testing::HasSubstr("epoch 1 of 2: loss 6.0000, loss scale 2, 2 skipped, "));
}

TEST_F(TrainingWatchTest, PrintsALineForAnEpochAndForStepsNowAndThen) {
  std::FILE* const file = std::tmpfile();
  ProgressPrinter printer(file, 5);
  TrainingWatch watch(Config(2, 30));
  watch.Add(&printer);
  for (int i = 0; i < 3; ++i) Step(watch, 2, 10, 0.5);
  watch.OnEpoch(0.875);
  watch.OnEnd();
  std::rewind(file);
  char text[1000] = {};
  std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  EXPECT_THAT(
      std::string(text),
      testing::MatchesRegex(
          "epoch 1 of 2, step 3: loss 0.5000, 5 examples/s, 6 s left\n"
          "epoch 1 of 2: loss 0.5000, score 0.8750, 5 examples/s, at most [0-9.]+ MiB, 6 s left\n"
          "3 steps in 6.0 s, at most [0-9.]+ MiB\n"));
}

}  // namespace
}  // namespace tidepool::nn
