#include "tidepool/nn/training/early_stopping.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

TEST(EarlyStopping, StopsAfterEpochsWithoutAnImprovement) {
  EarlyStopping stopping({.patience = 2});
  EXPECT_TRUE(stopping.Observe(3));
  EXPECT_FALSE(stopping.Observe(3));
  EXPECT_TRUE(stopping.Observe(2));
  EXPECT_FALSE(stopping.Observe(2.5));
  EXPECT_FALSE(stopping.should_stop());
  EXPECT_FALSE(stopping.Observe(2));
  EXPECT_TRUE(stopping.should_stop());
  EXPECT_EQ(stopping.reason(), StopReason::kPatience);
  EXPECT_EQ(stopping.best_epoch(), 2);
  EXPECT_EQ(stopping.best_score(), 2);
  EXPECT_EQ(stopping.ToString(), "stopped after 5 epochs: no improvement for 2; best 2 in epoch 2");
  // It may go on, and has stopped all the same.
  EXPECT_TRUE(stopping.Observe(1));
  EXPECT_TRUE(stopping.should_stop());
}

TEST(EarlyStopping, LargerIsBetterAndByHowMuch) {
  EarlyStopping stopping({.larger_is_better = true, .patience = 2, .least_improvement = 0.1});
  EXPECT_TRUE(stopping.Observe(0.5));
  EXPECT_FALSE(stopping.Observe(0.55));
  EXPECT_TRUE(stopping.Observe(0.65));
  EXPECT_FALSE(stopping.should_stop());
}

TEST(EarlyStopping, GoalsEpochsAndNan) {
  EarlyStopping goal({.larger_is_better = true, .goal = 0.9});
  goal.Observe(0.8);
  EXPECT_FALSE(goal.should_stop());
  goal.Observe(0.9);
  EXPECT_EQ(goal.reason(), StopReason::kGoal);
  EarlyStopping epochs({.most_epochs = 2});
  epochs.Observe(2);
  EXPECT_FALSE(epochs.should_stop());
  epochs.Observe(1);
  EXPECT_EQ(epochs.reason(), StopReason::kMostEpochs);
  EXPECT_EQ(epochs.ToString(), "stopped after 2 epochs: that is all; best 1 in epoch 1");
  EarlyStopping diverged, patient({.patience = 2, .stops_at_nan = false});
  EXPECT_FALSE(diverged.Observe(NAN));
  EXPECT_EQ(diverged.reason(), StopReason::kNan);
  EXPECT_EQ(diverged.best_epoch(), -1);
  EXPECT_FALSE(patient.Observe(NAN));
  EXPECT_FALSE(patient.should_stop());
  EXPECT_TRUE(patient.Observe(INFINITY));
  EXPECT_FALSE(patient.Observe(INFINITY));
  EXPECT_TRUE(patient.Observe(7));
}

TEST(EarlyStopping, GoesOnWhereItWas) {
  EarlyStopping stopping({.patience = 3}), resumed({.patience = 3});
  stopping.Observe(1);
  stopping.Observe(2);
  resumed.Restore(stopping.epochs(), stopping.best_epoch(), stopping.best_score());
  for (EarlyStopping* each : {&stopping, &resumed}) {
    each->Observe(2);
    EXPECT_FALSE(each->should_stop());
    each->Observe(2);
    EXPECT_EQ(each->reason(), StopReason::kPatience);
  }
}

EarlyStopping Resumed(const EarlyStopping& stopping, StopReason reason = StopReason::kNone) {
  EarlyStopping resumed(stopping.config());
  resumed.Restore(stopping.epochs(), stopping.best_epoch(), stopping.best_score(), reason);
  return resumed;
}

TEST(EarlyStopping, KnowsThatItWasOver) {
  EarlyStopping patience({.patience = 3}), most({.most_epochs = 2}), goal({.goal = 0.6}),
      nan({.patience = 9}), going_on({.patience = 3, .goal = 0.5});
  for (const double score : {1.0, 2.0, 2.0, 2.0}) patience.Observe(score);
  for (const double score : {1.0, 0.5}) most.Observe(score);
  goal.Observe(0.5);
  nan.Observe(NAN);
  going_on.Observe(0.75);
  for (const EarlyStopping* each : {&patience, &most, &goal, &nan, &going_on}) {
    const EarlyStopping resumed = Resumed(*each);
    EXPECT_EQ(resumed.reason(), each->reason()) << each->ToString();
    EXPECT_EQ(resumed.ToString(), each->ToString());
  }
  // What only a score told that is gone.
  EarlyStopping later({.patience = 9});
  later.Observe(1);
  later.Observe(NAN);
  EXPECT_EQ(later.reason(), StopReason::kNan);
  EXPECT_FALSE(Resumed(later).should_stop());
  EXPECT_EQ(Resumed(later, later.reason()).reason(), StopReason::kNan);
  EarlyStopping fresh({.patience = 1, .most_epochs = 1});
  EXPECT_FALSE(Resumed(fresh).should_stop());
}

TEST(EarlyStopping, NumbersAreChecked) {
  const auto message = [](const EarlyStoppingConfig& config) {
    return std::string(CatchStatus([&] { EarlyStopping stopping(config); }).message());
  };
  EXPECT_EQ(message({.patience = 0}), "early stopping: patience 0, expected at least 1");
  EXPECT_EQ(message({.least_improvement = -1}),
            "early stopping: least_improvement -1, expected 0 or more");
  EXPECT_EQ(message({.most_epochs = 0}), "early stopping: most_epochs 0, expected at least 1");
  EXPECT_EQ(message({.goal = NAN}), "early stopping: goal nan, expected a number");
  EarlyStopping stopping;
  EXPECT_FALSE(CatchStatus([&] { stopping.Restore(2, 2, 0); }).ok());
  EXPECT_FALSE(CatchStatus([&] { stopping.Restore(-1, -1, 0); }).ok());
}

}  // namespace
}  // namespace tidepool::nn
