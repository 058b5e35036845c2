// What a follower keeps for what steps take beside their plans.
#include <cstdint>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/budget/budget_follower.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
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

}  // namespace
}  // namespace tidepool::nn
