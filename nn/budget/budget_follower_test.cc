// Training that follows the budgets there are: lowered and raised while it runs, impossible, shared.
#include "tidepool/nn/budget/budget_follower.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/unbudgeted_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kBatch = 8;

Network Made(const std::string& name) {
  return DeepNetwork(name, 10, SearchingBriefly(Options(WorkspaceMode::kEnabled)));
}

// A job below an owner of its own, whose arrays are the owner's.
class Job {
 public:
  Job(MemoryOwner& owner, const std::string& name, double weight = 1)
      : scope_(std::make_unique<MemoryOwnerScope>(owner)),
        network_(Made(name)),
        trainer_(network_, UpdaterConfig::Of(UpdaterKind::kAdam)),
        follower_(network_, OptionsOf(network_, weight)) {
    scope_.reset();
  }
  double Step(bool follows = true) {
    if (follows) follower_.Follow();
    const int i = step_++;
    return trainer_.Step([i] {
      Batch batch{RandomUniform({kBatch, 28, 28, 1}, 0, 1, static_cast<uint64_t>(i)),
                  NDArray({kBatch}, DType::kInt64)};
      for (int64_t k = 0; k < kBatch; ++k) batch.labels.mutable_data<int64_t>()[k] = (i + k) % 10;
      return batch;
    });
  }
  BudgetFollower& follower() { return follower_; }
  Network& network() { return network_; }
  const StepBudgetReport& report() const { return *follower_.report(); }
  bool keeps_everything() const {
    return !report().plan.spills() && !report().plan.recomputes() && !report().plan.remakes();
  }

 private:
  // Costs are given, so that plans do not hang on how busy the machine is.
  static FollowerOptions OptionsOf(const Network& network, double weight) {
    const size_t parts = network.config()->nodes.size() + 1;
    FollowerOptions options{.shape = {.batch = kBatch}, .weight = weight};
    options.costs = StepCosts{std::vector<double>(parts, 1e-3), std::vector<double>(parts, 2e-3),
                              1e6, 1e6, std::vector<double>(parts - 1, 5e-4)};
    return options;
  }
  std::unique_ptr<MemoryOwnerScope> scope_;
  Network network_;
  Trainer trainer_;
  BudgetFollower follower_;
  int step_ = 0;
};

// Losses and arrays of so many steps without a budget.
std::pair<std::vector<double>, std::string> Unlimited(const std::string& name, int steps) {
  Network network = Made(name);
  std::vector<double> losses;
  MemoryOwner& owner = MemoryOwner::Process().Child("unlimited");
  Job job(owner, name);
  for (int i = 0; i < steps; ++i) losses.push_back(job.Step());
  EXPECT_EQ(job.follower().report(), nullptr);
  EXPECT_EQ(job.follower().allowed_bytes(), MemoryBudget::kUnlimited);
  return {losses, BytesOf(job.network().arrays())};
}

int64_t TakenBy(const MemoryOwner& owner) {
  return MemoryBudget::Global().Of(owner, Host()).taken_bytes;
}

struct Limit {
  explicit Limit(const std::string& name) : owner(MemoryOwner::Process().Child(name)) {}
  ~Limit() { Set(MemoryBudget::kUnlimited); }
  void Set(int64_t bytes) { MemoryBudget::Global().SetOwnerLimit(owner, Host(), bytes); }
  MemoryOwner& owner;
};

// What a step needs that keeps everything, and what else the job holds.
struct Needs {
  int64_t step = 0, others = 0;
};
Needs NeedsOf(const std::string& name) {
  Limit limit("needs");
  Job job(limit.owner, name);
  limit.Set(int64_t{1} << 40);
  job.follower().Follow();
  return {job.report().unlimited_bytes, TakenBy(limit.owner)};
}

TEST(BudgetFollower, ALoweredBudgetHoldsFromTheNextStepOnAndNoBitChanges) {
  for (const char* const name : {"residual", "transformer", "lstm"}) {
    SCOPED_TRACE(name);
    const auto [losses, arrays] = Unlimited(name, 24);
    const Needs needs = NeedsOf(name);
    Limit limit("job");
    Job job(limit.owner, name);
    int step = 0;
    const auto run = [&](double step_bytes) {
      const int64_t bytes = needs.others + static_cast<int64_t>(step_bytes);
      limit.Set(bytes);
      for (int i = 0; i < 4; ++i, ++step) {
        ASSERT_EQ(job.Step(), losses[static_cast<size_t>(step)]) << bytes << ", step " << step;
        EXPECT_LE(TakenBy(limit.owner), bytes) << "step " << step;
      }
    };
    const auto whole = static_cast<double>(needs.step);
    run(1.5 * whole);
    EXPECT_TRUE(job.keeps_everything()) << job.report().ToString();
    run(0.75 * whole);
    EXPECT_FALSE(job.keeps_everything()) << job.report().ToString();
    const int64_t lowered = job.report().planned_bytes;
    EXPECT_EQ(job.follower().plans(), 2);
    run(0.5 * whole);
    EXPECT_LT(job.report().planned_bytes, lowered);
    run(0.5 * whole);  // nothing has changed
    EXPECT_EQ(job.follower().plans(), 3);
    run(1.5 * whole);
    EXPECT_TRUE(job.keeps_everything()) << job.report().ToString();
    EXPECT_EQ(job.follower().plans(), 4);
    limit.Set(MemoryBudget::kUnlimited);
    for (; step < 24; ++step) ASSERT_EQ(job.Step(), losses[static_cast<size_t>(step)]);
    EXPECT_EQ(job.follower().report(), nullptr);
    EXPECT_EQ(BytesOf(job.network().arrays()), arrays);
  }
}

// From 100 KB to 5 MB, where records of the tape or the end of the last page are a part that counts, and however the batch is made.
TEST(BudgetFollower, StepsKeepToWhatFollowFoundRoomFor) {
  int steps = 0, refused = 0;
  for (const int64_t width : {8, 24}) {
    for (const int64_t batch : {2, 8, 24}) {
      for (int percent = 40; percent <= 115; percent += 25) {
        Limit limit(absl::StrCat("chain ", width, " ", batch, " ", percent));
        const MemoryOwnerScope scope(limit.owner);
        std::vector<AnyLayer> layers;
        for (int i = 0; i < 8; ++i)
          layers.push_back(Conv2D(width, 3, 3, Activation::kRelu, Conv2D::SamePadding(3)));
        layers.push_back(Dense(5));
        Network network(Shape{14, 14, 8}, layers, 1);
        Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
        const int64_t need = batch * 196 * width * 4 * 10;
        limit.Set(TakenBy(limit.owner) + need * percent / 100);
        BudgetFollower follower(network, {.shape = {.batch = batch}});
        for (uint64_t i = 0; i < 4; ++i, ++steps) {
          SCOPED_TRACE(absl::StrCat(width, " wide, batch ", batch, ", ", percent, " %, step ", i));
          try {
            follower.Follow();
          } catch (const OutOfMemoryError&) {
            ++refused;
            break;
          }
          ASSERT_NO_THROW(trainer.Step([&] {
            return Batch(RandomUniform({batch, 14, 14, 8}, -1, 1, i),
                         RandomIntegers({batch}, 0, 5, i));
          }));
          EXPECT_EQ(network.training_workspace().stats().spills, 0u);
        }
        EXPECT_LE(follower.plans(), 1);
      }
    }
  }
  EXPECT_GE(steps, 60);
  EXPECT_GE(refused, 1);
}

// A batch that takes more requests than was planned for, and more than the limit has room for beside the plan, is planned for when it
// was seen to fail.
TEST(BudgetFollower, TrainingGoesOnWhereBatchesTakeMoreThanWasPlannedFor) {
  Limit limit("larger batches");
  const MemoryOwnerScope scope(limit.owner);
  Network network(Shape{14, 14, 8},
                  {Conv2D(8, 3, 3), Conv2D(8, 3, 3), Conv2D(8, 3, 3), Conv2D(8, 3, 3), Dense(5)},
                  1);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  constexpr int64_t kExamples = 32;
  const int64_t of_batch = kExamples * 14 * 14 * 8 * 4;
  limit.Set(TakenBy(limit.owner) + 5 * of_batch);
  BudgetFollower follower(network,
                          {.strategy = BudgetStrategy::kRecompute, .shape = {.batch = kExamples}});
  int failed = 0, done = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    follower.Follow();
    try {
      trainer.Step([&] {
        NDArray drawn = RandomUniform({kExamples, 14, 14, 8}, -1, 1, i);
        NDArray again = Multiply(drawn, 2.0);
        return Batch(again, RandomIntegers({kExamples}, 0, 5, i));
      });
      ++done;
    } catch (const OutOfMemoryError&) {
      ++failed;
    }
  }
  EXPECT_LE(failed, 5) << follower.ToString();
  EXPECT_EQ(follower.plans(), failed + 1);
  EXPECT_GE(done, 15);
}

// Nothing fits: the error says which limit would, and with that the job goes on as if nothing had been.
TEST(BudgetFollower, WhatDoesNotFitIsToldWithTheLimitThatWouldBeEnough) {
  const auto [losses, arrays] = Unlimited("residual", 6);
  const Needs needs = NeedsOf("residual");
  Limit limit("impossible");
  Job job(limit.owner, "residual");
  limit.Set(needs.others + 2 * needs.step);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(job.Step(), losses[static_cast<size_t>(i)]);
  limit.Set(needs.others + needs.step / 50);
  int64_t enough = 0;
  for (int i = 0; i < 2; ++i) {  // each time
    try {
      job.Step();
      FAIL();
    } catch (const OutOfMemoryError& error) {
      EXPECT_THAT(error.message(),
                  AllOf(HasSubstr("follows the limit of owner [impossible]"),
                        HasSubstr("others hold"), HasSubstr("would have been enough")));
      EXPECT_THAT(error.message(), HasSubstr("would have been enough, or a smaller batch; "));
      EXPECT_THAT(error.report(), HasSubstr("host"));
      const std::string text = "a limit of ";
      enough = std::stoll(error.message().substr(error.message().find(text) + text.size()));
    }
    EXPECT_EQ(job.follower().report(), nullptr);
    EXPECT_EQ(job.network().activations(), nullptr);
  }
  EXPECT_LT(enough, needs.others + needs.step);
  limit.Set(enough);
  for (int i = 3; i < 6; ++i) EXPECT_EQ(job.Step(), losses[static_cast<size_t>(i)]) << i;
  EXPECT_LE(TakenBy(limit.owner), enough);
  EXPECT_EQ(BytesOf(job.network().arrays()), arrays);
}

TEST(BudgetFollower, TwoTrainersShareABudget) {
  const auto [losses, arrays] = Unlimited("residual", 10);
  const Needs needs = NeedsOf("residual");
  Limit limit("shared");
  Job first(limit.owner, "residual");
  const int64_t bytes = 2 * needs.others + needs.step * 13 / 10;
  limit.Set(bytes);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(first.Step(), losses[static_cast<size_t>(i)]);
  EXPECT_TRUE(first.keeps_everything());
  {
    Job second(limit.owner, "residual");
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(second.Step(), losses[static_cast<size_t>(i)]) << i;
      EXPECT_EQ(first.Step(), losses[static_cast<size_t>(i + 2)]) << i;
      EXPECT_LE(TakenBy(limit.owner), bytes);
    }
    EXPECT_FALSE(first.keeps_everything());
    EXPECT_FALSE(second.keeps_everything());
    EXPECT_LE(first.report().planned_bytes + second.report().planned_bytes,
              bytes - 2 * needs.others);
    EXPECT_EQ(first.follower().plans(), 2);
    EXPECT_EQ(second.follower().plans(), 1);
  }
  for (int i = 6; i < 10; ++i) EXPECT_EQ(first.Step(), losses[static_cast<size_t>(i)]);
  EXPECT_TRUE(first.keeps_everything());
  EXPECT_EQ(BytesOf(first.network().arrays()), arrays);
}

TEST(BudgetFollower, WeightsAreSharesOfWhatIsLeft) {
  const Needs needs = NeedsOf("residual");
  Limit limit("weighed");
  Job small(limit.owner, "residual"), large(limit.owner, "residual", 3);
  limit.Set(TakenBy(limit.owner) + 2 * needs.step);
  EXPECT_EQ(small.follower().allowed_bytes(), needs.step / 2);
  EXPECT_EQ(large.follower().allowed_bytes(), needs.step * 3 / 2);
  for (const double weight : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(MessageOf([&] { Job job(limit.owner, "residual", weight); }),
                HasSubstr("budget follower: a weight of"));
  }
  EXPECT_EQ(small.follower().allowed_bytes(), needs.step / 2);
}

// Each on a thread of its own, while the budget goes up and down.
TEST(BudgetFollower, TrainersOnThreadsWhileTheBudgetChanges) {
  const auto [losses, arrays] = Unlimited("residual", 30);
  const Needs needs = NeedsOf("residual");
  Limit limit("threads");
  const int64_t large = 2 * needs.others + 4 * needs.step;
  limit.Set(large);
  std::atomic<int> done{0};
  const auto train = [&, &losses = losses, &arrays = arrays] {
    Job job(limit.owner, "residual");
    for (size_t i = 0; i < 30;) {
      try {
        job.follower().Follow();
        EXPECT_EQ(job.Step(/*follows=*/false), losses[i]) << i;
        ++i;
      } catch (const OutOfMemoryError&) {
        std::this_thread::yield();  // the other one has not given way yet
        break;
      }
    }
    if (job.follower().plans() > 0) ++done;
    (void)arrays;
  };
  std::thread one(train), two(train);
  for (int i = 0; i < 6; ++i) {
    limit.Set(large - needs.step * (i % 2));
    std::this_thread::yield();
  }
  one.join();
  two.join();
  EXPECT_EQ(done.load(), 2);
}

// The process's limit is followed by a network that no owner claims.
TEST(BudgetFollower, OfTheProcess) {
  MemoryBudget& budget = MemoryBudget::Global();
  const Needs needs = NeedsOf("residual");
  Job job(MemoryOwner::Process(), "residual");
  budget.SetProcessLimit(budget.process().taken_bytes + needs.step * 7 / 10);
  const auto [losses, arrays] = [&] {
    std::vector<double> found;
    for (int i = 0; i < 3; ++i) found.push_back(job.Step());
    return std::pair(found, BytesOf(job.network().arrays()));
  }();
  EXPECT_FALSE(job.keeps_everything());
  EXPECT_LE(budget.process().over_bytes(), 0);
  budget.SetProcessLimit(MemoryBudget::kUnlimited);
  const auto expected = Unlimited("residual", 3);
  EXPECT_EQ(losses, expected.first);
  EXPECT_EQ(arrays, expected.second);
}

TEST(OwnerBesideBudgets, IsOnTheLedgerAndInNoBudget) {
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryOwner& beside = OwnerBesideBudgets();
  EXPECT_EQ(&beside, &OwnerBesideBudgets());
  const int64_t before = budget.process().taken_bytes, own = TakenBy(beside);
  budget.SetProcessLimit(before + (1 << 20));
  {
    NDArray array;
    {
      const MemoryOwnerScope owner(beside.Child("step"));
      array = NDArray({1 << 20}, DType::kFloat32, Place::Heap());
    }
    EXPECT_EQ(TakenBy(beside) - own, 4 << 20);
    EXPECT_EQ(budget.process().taken_bytes, before);
    EXPECT_THROW(NDArray({1 << 20}, DType::kFloat32, Place::Heap()), OutOfMemoryError);
  }
  EXPECT_EQ(TakenBy(beside), own);
  EXPECT_EQ(budget.process().taken_bytes, before);
  budget.SetProcessLimit(MemoryBudget::kUnlimited);
}

}  // namespace
}  // namespace tidepool::nn
