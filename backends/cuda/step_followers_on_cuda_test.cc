// Training on an emulated device that follows the limits there are.
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/step_budget_runs.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/nn/budget/budget_follower.h"
#include "tidepool/nn/budget/step_budget.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

class FollowersOnCuda : public StepBudgetsOnCuda {
 protected:
  ~FollowersOnCuda() override {
    MemoryBudget::Global().SetDeviceLimit(kDevice, MemoryBudget::kUnlimited);
    MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  }
  static int64_t Taken() {
    UsedOfDevice();
    return MemoryBudget::Global().Of(kDevice).taken_bytes;
  }
};

TEST_F(FollowersOnCuda, LimitsOfTheDeviceAreFollowedAsTheyChange) {
  Network kept(Rows(), OnDevice());
  const Outcome expected = Train(kept, 9);
  Network network(Rows(), OnDevice());
  BudgetFollower follower(network, {.shape = {.batch = kBatch}});
  EXPECT_FALSE(follower.Follow());
  // What a trainer holds is there before.
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  const int64_t others = Taken();
  int step = 0;
  std::vector<double> losses;
  for (const int64_t left : {int64_t{1} << 20, int64_t{300} << 10, int64_t{1} << 20}) {
    const bool lowered = step > 0 && left < follower.allowed_bytes();
    // A limit below what is taken takes effect at the next step.
    MemoryBudget::Global().SetDeviceLimit(kDevice, others + left);
    if (lowered) {
      EXPECT_LE(follower.allowed_bytes(), left);
    }
    EXPECT_TRUE(follower.Follow());
    ASSERT_NE(follower.report(), nullptr);
    EXPECT_LE(follower.report()->planned_bytes, left);
    const ActivationPlan& plan = follower.report()->plan;
    EXPECT_EQ(plan.spills() || plan.recomputes(), left < (1 << 20)) << follower.ToString();
    for (int i = 0; i < 3; ++i, ++step) {
      EXPECT_FALSE(follower.Follow());
      losses.push_back(trainer.Step([&] { return Batch(Features(network, step), Labels(step)); }));
    }
    EXPECT_LE(MemoryBudget::Global().Of(kDevice).taken_bytes, others + left);
  }
  EXPECT_EQ(losses, expected.losses);
  EXPECT_EQ(network.arrays().ToVector<float>(), expected.arrays);
}

// Of another device than the network's none, of the process all.
TEST_F(FollowersOnCuda, OnlyLimitsOfTheNetworksDeviceCount) {
  Network network(Rows(), OnDevice());
  BudgetFollower follower(network, {.shape = {.batch = kBatch}});
  MemoryBudget::Global().SetDeviceLimit(Host(), int64_t{1} << 30);
  EXPECT_EQ(follower.allowed_bytes(), MemoryBudget::kUnlimited);
  MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  const int64_t taken = MemoryBudget::Global().process().taken_bytes;
  MemoryBudget::Global().SetProcessLimit(taken + (300 << 10));
  EXPECT_EQ(follower.allowed_bytes(), 300 << 10);
  EXPECT_TRUE(follower.Follow());
  MemoryBudget::Global().SetProcessLimit(taken + 1000);
  const absl::Status status = CatchStatus([&] { follower.Follow(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("follows the limit of the process"));
  MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  MemoryBudget::Global().SetDeviceLimit(kDevice, 1000);
  EXPECT_THAT(CatchStatus([&] { follower.Follow(); }).message(),
              HasSubstr("follows the limit of device cuda:0"));
}

// What waits on the host has room there, or is computed again.
TEST_F(FollowersOnCuda, LimitsOfTheHostHoldForWhatWaits) {
  Network kept(Rows(), OnDevice());
  const Outcome expected = Train(kept, 6);
  Network network(Rows(), OnDevice());
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  BudgetFollower follower(network, {.shape = {.batch = kBatch}});
  MemoryBudget::Global().SetDeviceLimit(kDevice, Taken() + (300 << 10));
  std::vector<double> losses;
  const auto step = [&] {
    const auto i = static_cast<int64_t>(losses.size());
    losses.push_back(trainer.Step([&] { return Batch(Features(network, i), Labels(i)); }));
  };
  EXPECT_TRUE(follower.Follow());
  ASSERT_TRUE(follower.report()->plan.spills()) << follower.ToString();
  for (int i = 0; i < 3; ++i) step();
  EXPECT_FALSE(follower.Follow());
  const int64_t waiting = follower.report()->predicted.spilled_bytes;
  // Room for the tape, and not for all that waits.
  MemoryBudget::Global().SetDeviceLimit(
      Host(), MemoryBudget::Global().Of(Host()).taken_bytes - waiting + (64 << 10));
  EXPECT_TRUE(follower.Follow());
  EXPECT_LT(follower.report()->predicted.spilled_bytes, waiting) << follower.ToString();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(follower.Follow()) << follower.ToString();
    step();
  }
  EXPECT_EQ(losses, expected.losses);
  // Where nothing fits the host's limit is named, and where there is room again it is used.
  MemoryBudget::Global().SetDeviceLimit(kDevice, Taken() - follower.report()->planned_bytes);
  EXPECT_THAT(CatchStatus([&] { follower.Follow(); }).message(),
              HasSubstr(" may wait on the host by the limits of the host and the process"));
  MemoryBudget::Global().SetDeviceLimit(kDevice, Taken() + (300 << 10));
  EXPECT_TRUE(follower.Follow());
  const int64_t again = follower.report()->predicted.spilled_bytes;
  MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  EXPECT_TRUE(follower.Follow());
  EXPECT_GT(follower.report()->predicted.spilled_bytes, again) << follower.ToString();
  EXPECT_FALSE(follower.Follow());
}

// Steps are captured again behind each plan, in the workspace that there is then.
TEST_F(FollowersOnCuda, TrainersWithGraphs) {
  Network kept(Rows(), OnDevice());
  const auto step = [&](Trainer& trainer, Network& network, int i) {
    return trainer.Step([&] { return Batch(Features(network, i), Labels(i)); });
  };
  std::vector<double> expected, losses;
  Trainer of_kept(kept, UpdaterConfig::Of(UpdaterKind::kSgd));
  for (int i = 0; i < 18; ++i) expected.push_back(step(of_kept, kept, i));
  Network network(Rows(), OnDevice());
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  trainer.set_graphs(true);
  StepShape shape{.batch = kBatch};
  shape.trainer = &trainer;
  int i = 0;
  for (const char* const limit : {"100%", "65%", "80%"}) {
    SetStepBudget(network,
                  {.limit = limit, .strategy = BudgetStrategy::kRecompute, .shape = shape});
    const int64_t launches = trainer.graph_stats()->launches;
    for (const int end = i + 6; i < end; ++i) losses.push_back(step(trainer, network, i));
    EXPECT_GT(trainer.graph_stats()->launches, launches) << limit;
    EXPECT_GT(network.training_workspace().stats().cycles, 0u) << limit;
    EXPECT_EQ(trainer.graph_stats()->failures, 0) << trainer.graph_stats()->last_failure;
  }
  EXPECT_EQ(losses, expected);
  // Who does not tell of the trainer is told.
  EXPECT_THAT(CatchStatus([&] {
                SetStepBudget(network, {.limit = "50%", .shape = {.batch = kBatch}});
              }).message(),
              HasSubstr("Trainer::ForgetGraph"));
}

}  // namespace
}  // namespace tidepool::nn
