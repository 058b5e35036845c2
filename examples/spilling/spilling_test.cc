// What docs/spilling.md shows.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/spill/spillable_array.h"
#include "tidepool/ndarray/spill/spilled_array.h"
#include "tidepool/ndarray/spill/spilled_segments.h"

namespace tidepool {
namespace {

// [array]
float SumAfterWaiting(SpillFile& file) {
  NDArray activations = RandomUniform({256, 1024}, -1, 1, /*seed=*/1);
  SpilledArray waits(file, activations);  // written when this returns
  activations = NDArray();                // its memory is free now

  const NDArray other = RandomUniform({256, 1024}, -1, 1, /*seed=*/2);

  waits.Prefetch();  // read beside what comes next
  const NDArray busy = Sum(Tanh(other));
  activations = waits.Restore();  // shape, type and bits of before
  return Sum(activations).Item<float>();
}
// [array]

// [training]
// Layers whose inputs wait in the file between the forward and the backward pass.
float Step(SpillFile& file, std::vector<NDArray>& weights, const NDArray& x, double rate) {
  GradientTape tape;
  for (const NDArray& w : weights) tape.Watch(w);
  SpilledSegments segments(file);
  NDArray h = x.Dup();
  for (const NDArray& w : weights) {
    const auto layer = [w](absl::Span<const NDArray> in) {
      return std::vector<NDArray>{Tanh(MatMul(in[0], w))};
    };
    h = segments.Run(layer, {h}, {w})[0];
  }
  NDArray loss = Mean(Square(h));
  h = NDArray();
  tape.Backward(loss);
  for (NDArray& w : weights) w -= tape.Gradient(w) * Scalar(rate);
  return loss.Item<float>();
}
// [training]

// [spillable]
// A table that is used now and then, and gives its memory to whoever needs it in between.
class Scores {
 public:
  explicit Scores(Spillables& spillables)
      : table_(spillables, RandomUniform({1024, 64}, -1, 1, /*seed=*/1), "scores") {}

  NDArray Of(const NDArray& questions) {
    const SpillableArray::Pinned table = table_.Read();  // in memory until the end of this
    return MatMul(questions, table->Transpose());
  }
  void Forget(double share) { *table_.Write() *= Scalar(1 - share); }

 private:
  SpillableArray table_;
};
// [spillable]

// [cycles]
// Steps that use the same tables in the same order, where there is no room for all of them.
float AnswerAll(Spillables& spillables, std::vector<SpillableArray>& tables, const NDArray& x,
                int steps) {
  float sum = 0;
  for (int step = 0; step < steps; ++step) {
    for (SpillableArray& table : tables) {
      const SpillableArray::Pinned pinned = table.Read();
      sum += Sum(MatMul(x, *pinned)).Item<float>();
    }
    spillables.EndCycle();  // the next one is as this one was
  }
  return sum;
}
// [cycles]

// [bytes]
SpilledBytes WriteBeside(SpillFile& file, const std::string& text) {
  SpillTransfer writes = file.BeginWrite(text.data(), text.size());
  // ... text must stay as it is until then ...
  return writes.Wait();
}
// [bytes]

// [tiers]
// What leaves a device waits in at most so many bytes of the host's page-locked memory; then in the file.
Spillables WithTier(SpillFile& file) {
  return Spillables(file, {{.device = Host(), .bytes = int64_t{8} << 30}});
}
// [tiers]

TEST(Spilling, AnArrayWaitsInAFile) {
  SpillFile file({.folder = testing::TempDir(), .capacity_bytes = int64_t{1} << 30});
  EXPECT_EQ(SumAfterWaiting(file), Sum(RandomUniform({256, 1024}, -1, 1, 1)).Item<float>());
  EXPECT_EQ(file.stats().read.transfers, 1);
  EXPECT_EQ(file.stats().used_bytes, 0);
}

TEST(Spilling, ABudgetTakesWhatNobodyUses) {
  SpillFile file({.folder = testing::TempDir()});
  Spillables spillables(file);
  MemoryOwner& small = MemoryOwner::Process().Child("small");
  const MemoryOwnerScope owner(small);
  Scores scores(spillables);
  const NDArray question = RandomUniform({1, 64}, -1, 1, 2);
  const float before = Sum(scores.Of(question)).Item<float>();
  MemoryBudget::Global().SetOwnerLimit(small, Host(), 1000000);
  {
    const NDArray other = Zeros({200000});
    EXPECT_EQ(spillables.stats().here_bytes, 0);
  }
  EXPECT_EQ(Sum(scores.Of(question)).Item<float>(), before);
  scores.Forget(1);
  EXPECT_EQ(Sum(scores.Of(question)).Item<float>(), 0);
  MemoryBudget::Global().SetOwnerLimit(small, Host(), MemoryBudget::kUnlimited);
}

TEST(Spilling, WhatLeavesADeviceWaitsOnTheHost) {
  SpillFile file({.folder = testing::TempDir()});
  Spillables spillables = WithTier(file);
  const Device device = SimulatedDevice::kDevice;
  SpillableArray array(spillables, Full({1000}, 3.0).CopyTo(Place::On(device)), "there");
  EXPECT_TRUE(array.Spill());
  EXPECT_EQ(spillables.stats().tiers[0].here_bytes, 4000);
  EXPECT_EQ(file.stats().written.bytes, 0);
  EXPECT_EQ((*array.Read()).device(), device);
  EXPECT_EQ(array.Read()->CopyTo(Place::Heap()).ToVector<float>(), std::vector<float>(1000, 3));
}

TEST(Spilling, StepsThatAreLearned) {
  SpillFile file({.folder = testing::TempDir()});
  Spillables spillables(file);
  MemoryOwner& small = MemoryOwner::Process().Child("small");
  const NDArray x = Full({1, 64}, 1.0);
  MemoryBudget::Global().SetOwnerLimit(small, Host(), 4 * 64 * 1024);
  std::vector<SpillableArray> tables;
  {
    const MemoryOwnerScope owner(small);
    for (int i = 0; i < 8; ++i)
      tables.emplace_back(spillables, Full({64, 256}, static_cast<double>(i)), "table");
  }
  EXPECT_EQ(AnswerAll(spillables, tables, x, /*steps=*/5), 5 * 28 * 64 * 256);
  const SpillPlanCounters plan = spillables.stats().plan;
  EXPECT_EQ(plan.followed_cycles, 2);
  EXPECT_GT(plan.ahead, 0);
  tables.clear();
  MemoryBudget::Global().SetOwnerLimit(small, Host(), MemoryBudget::kUnlimited);
}

TEST(Spilling, LayersWhoseInputsWait) {
  SpillFile file({.folder = testing::TempDir()});
  std::vector<NDArray> weights;
  for (int i = 0; i < 6; ++i)
    weights.push_back(RandomUniform({16, 16}, -0.5, 0.5, static_cast<uint64_t>(i)));
  const NDArray x = RandomUniform({64, 16}, -1, 1, 9);
  const float first = Step(file, weights, x, 1);
  float last = 0;
  for (int step = 0; step < 20; ++step) last = Step(file, weights, x, 1);
  EXPECT_LT(last, first);
}

TEST(Spilling, BytesWithoutArrays) {
  SpillFile file({.folder = testing::TempDir()});
  std::string text(100000, 'x');
  const SpilledBytes kept = WriteBeside(file, text);
  text.assign(text.size(), ' ');
  file.Read(kept, text.data());
  EXPECT_EQ(text, std::string(100000, 'x'));
  EXPECT_EQ(file.stats().used_bytes, 102400);  // whole pages
}

}  // namespace
}  // namespace tidepool
