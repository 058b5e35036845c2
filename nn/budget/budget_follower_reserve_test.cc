// What a follower keeps for what steps take beside their plans.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/budget/budget_follower.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

// What batches took beside their plan is reserved for as long as they do, and comes back when they take it no more.
TEST(BudgetFollower, WhatIsReservedFallsOnceBatchesTakeNoMoreThanTheirPlan) {
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryOwner& owner = MemoryOwner::Process().Child("some larger batches");
  const MemoryOwnerScope scope(owner);
  std::vector<AnyLayer> layers(8, Conv2D(8, 3, 3, Activation::kRelu, Conv2D::SamePadding(3)));
  layers.push_back(Dense(5));
  Network network(Shape{14, 14, 8}, layers, 1);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  constexpr int64_t kExamples = 16, kOfBatch = kExamples * 14 * 14 * 8 * 4;
  if (network.SliceOf(0, 8) == 0) GTEST_SKIP() << "whole layers have no room below such a limit";
  budget.SetOwnerLimit(owner, Host(), budget.Of(owner, Host()).taken_bytes + 6 * kOfBatch);
  const absl::Cleanup lift = [&] { budget.SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited); };
  FollowerOptions options{.strategy = BudgetStrategy::kRecompute, .shape = {.batch = kExamples}};
  options.costs = StepCosts{std::vector<double>(10, 1e-3), std::vector<double>(10, 2e-3), 1e9, 1e9};
  BudgetFollower follower(network, options);
  uint64_t seed = 0;
  int failed = 0;
  const auto steps = [&](int count, bool are_large) {
    for (int i = 0; i < count; ++i) {
      follower.Follow();
      try {
        trainer.Step([&] {
          ++seed;
          NDArray features = RandomUniform({kExamples, 14, 14, 8}, -1, 1, seed);
          if (are_large) features = Multiply(features, 2.0) + features;
          return Batch(features, RandomIntegers({kExamples}, 0, 5, seed));
        });
      } catch (const OutOfMemoryError&) {
        ++failed;
      }
    }
  };
  steps(1, false);
  const int64_t before = follower.report()->limit_bytes;
  EXPECT_EQ(follower.reserved_bytes(), 0);
  steps(20, true);
  const int64_t reserved = follower.reserved_bytes();
  EXPECT_GE(failed, 1);
  EXPECT_GT(reserved, 0);
  EXPECT_LT(follower.report()->limit_bytes, before);
  const int were_failed = failed;
  steps(200, true);  // it is needed still
  EXPECT_EQ(follower.reserved_bytes(), reserved);
  EXPECT_EQ(failed, were_failed);
  const int64_t plans = follower.plans();
  steps(60, false);
  EXPECT_EQ(follower.reserved_bytes(), reserved);
  steps(300, false);
  EXPECT_EQ(follower.reserved_bytes(), 0);
  EXPECT_GE(follower.report()->limit_bytes,
            before - before / 32);  // less the tape, which was not there then
  EXPECT_GT(follower.plans(), plans);
  EXPECT_LE(follower.plans(), plans + 4);
  EXPECT_EQ(failed, were_failed);
  // Once in a hundred steps: nothing is given up in between for good, and steps fail ever less often.
  for (int round = 0; round < 12; ++round) {
    steps(1, true);
    steps(100, false);
  }
  EXPECT_LE(failed, were_failed + 8);
  EXPECT_GT(follower.reserved_bytes(), 0);
}

// Where records of the tape are most of what a step takes, as of layers of few elements: the limit that is told as enough is enough
// for the first step, whose tape grows, and for those behind it, by whatever plan the costs choose.
TEST(BudgetFollower, TheLimitThatIsToldHasRoomForATapeThatGrows) {
  for (const int layers : {4, 12, 80}) {
    for (const BudgetStrategy strategy : {BudgetStrategy::kNone, BudgetStrategy::kRecompute,
                                          BudgetStrategy::kSpill, BudgetStrategy::kAuto}) {
      if (layers > 12 && strategy != BudgetStrategy::kAuto)
        continue;  // which has the others' plans
      for (const double again : {1e-6, 1.0}) {
        SCOPED_TRACE(absl::StrCat(layers, " layers, ", BudgetStrategyName(strategy), ", ", again));
        MemoryOwner& owner = MemoryOwner::Process().Child("records");
        const MemoryOwnerScope scope(owner);
        std::vector<AnyLayer> of(static_cast<size_t>(layers),
                                 Conv2D(2, 3, 3, Activation::kRelu, Conv2D::SamePadding(3)));
        of.push_back(Dense(3));
        Network network(NetworkConfig::Sequential({5, 5, 2}, of),
                        SearchingBriefly(Options(WorkspaceMode::kEnabled)));
        Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
        const auto limit = [&](int64_t bytes) {
          MemoryBudget::Global().SetOwnerLimit(owner, Host(), bytes);
        };
        const absl::Cleanup lift = [&] { limit(MemoryBudget::kUnlimited); };
        FollowerOptions options{.strategy = strategy, .shape = {.batch = 4}};
        const std::vector<double> parts(static_cast<size_t>(layers) + 2, 1e-3);
        options.costs =
            StepCosts{parts, parts, 1e6,
                      1e6,   {},    std::vector<double>(static_cast<size_t>(layers) + 1, again)};
        BudgetFollower follower(network, options);
        limit(MemoryBudget::Global().Of(owner, Host()).taken_bytes + 4096);
        int64_t enough = 0;
        try {
          follower.Follow();
          FAIL();
        } catch (const OutOfMemoryError& error) {
          const std::string text = "a limit of ";
          enough = std::stoll(error.message().substr(error.message().find(text) + text.size()));
        }
        limit(enough);
        for (uint64_t i = 0; i < 4; ++i) {
          follower.Follow();
          ASSERT_NO_THROW(trainer.Step([&] {
            return Batch(RandomUniform({4, 5, 5, 2}, -1, 1, i), RandomIntegers({4}, 0, 3, i));
          })) << i;
        }
        EXPECT_EQ(follower.plans(), 1);
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
