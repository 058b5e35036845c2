// Memory of an emulated device as the ledger, budgets and rings see it.
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/pooling.h"

namespace tidepool {
namespace {

constexpr Device kCuda{DeviceType::kCuda, 0};
constexpr int64_t kMiB = 1 << 20;

NDArray OnDevice(int64_t bytes) { return Zeros({bytes / 4}, DType::kFloat32, Place::On(kCuda)); }
int64_t Ledger() { return MemoryTracker::Global().Snapshot()[kCuda].total.current_bytes; }
int64_t Kept() { return MemoryTracker::Global().CurrentBytes(kCuda, MemoryKind::kUnreferenced); }
int64_t OfDevice() {
  EmulatedCuda::Get().Finish();
  return static_cast<int64_t>(EmulatedCuda::Get().used_bytes() + EmulatedCuda::Get().kept_bytes());
}

class MemoryOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    OnDevice(4);  // the device is there, and on the ledger
    EmulatedCuda::Get().Finish();
    Reclaimer::Global().RunNow();
  }
  void TearDown() override {
    MemoryBudget::Global().SetDeviceLimit(kCuda, MemoryBudget::kUnlimited);
  }
};

TEST_F(MemoryOnCuda, WhatThePoolKeepsIsOnTheLedgerAndGivenBack) {
  const int64_t kept = Kept(), ledger = Ledger(), device = OfDevice();
  {
    const NDArray a = OnDevice(8 * kMiB), b = OnDevice(3 * kMiB);
    EXPECT_NEAR(Ledger() - ledger, 11 * kMiB, 64 << 10);
    EXPECT_NEAR(OfDevice() - device, Ledger() - ledger, 64 << 10);
  }
  EmulatedCuda::Get().Finish();
  const NDArray refresh = OnDevice(4096);  // the next block brings it up to date
  EXPECT_NEAR(Kept() - kept, 11 * kMiB, 64 << 10);
  EXPECT_NEAR(OfDevice() - device, Ledger() - ledger, 64 << 10);
  // Used again for blocks of other sizes.
  {
    const NDArray c = OnDevice(10 * kMiB);
    EXPECT_NEAR(Kept() - kept, kMiB, 64 << 10);
    EXPECT_NEAR(Ledger() - ledger, 11 * kMiB, 64 << 10);
  }
  EmulatedCuda::Get().Finish();
  EXPECT_GE(Reclaimer::Global().RunNow(), 10 * kMiB);
  EXPECT_NEAR(Kept() - kept, 0, 64 << 10);
  EXPECT_EQ(EmulatedCuda::Get().kept_bytes(), 0u);
  EXPECT_NEAR(OfDevice() - device, 0, 64 << 10);
}

TEST_F(MemoryOnCuda, KeptMemoryGoesWhenPagesNeedIt) {
  EmulatedCuda& emulated = EmulatedCuda::Get();
  { const NDArray large = OnDevice(6 * kMiB); }
  emulated.Finish();
  emulated.set_capacity(emulated.used_bytes() + emulated.kept_bytes() + kMiB);
  Workspace workspace("pages", WorkspaceConfig::Training(), kCuda);
  for (int i = 0; i < 3; ++i) {
    WorkspaceScope scope(workspace);
    const NDArray x = Full({kMiB / 2}, 2.0);  // 2 MiB
    EXPECT_EQ(x.At<float>({kMiB / 2 - 1}), 2);
  }
  emulated.set_capacity(size_t{1} << 30);
}

TEST_F(MemoryOnCuda, ABudgetOfTheDeviceIsKept) {
  MemoryBudget& budget = MemoryBudget::Global();
  const int64_t taken = budget.Of(kCuda).taken_bytes;
  budget.SetDeviceLimit(kCuda, taken + 4 * kMiB);
  const auto refused = [](auto&& call) {
    try {
      call();
    } catch (const OutOfMemoryError& error) {
      EXPECT_THAT(error.report(), testing::HasSubstr("cuda:0"));
      return error.message();
    }
    ADD_FAILURE() << "not refused";
    return std::string();
  };
  {
    const NDArray a = OnDevice(3 * kMiB);
    EXPECT_EQ(budget.Of(kCuda).taken_bytes, taken + 3 * kMiB);
    EXPECT_THAT(refused([] { OnDevice(2 * kMiB); }), testing::HasSubstr("cuda:0"));
    // The host's is another matter, and so is the other device's.
    Zeros({kMiB}, DType::kFloat32, Place::Heap());
    Zeros({kMiB}, DType::kFloat32, Place::On({DeviceType::kCuda, 1}));
  }
  OnDevice(2 * kMiB);
  EXPECT_EQ(budget.Of(kCuda).taken_bytes, taken);

  Workspace workspace("budget", WorkspaceConfig::Training(), kCuda);
  const auto step = [&](int64_t elements) {
    WorkspaceScope scope(workspace);
    const NDArray x = Full({elements}, 1.5);
    return (x + x).At<float>({elements - 1});
  };
  EXPECT_EQ(step(1000), 3);
  refused([&] { step(2 * kMiB); });  // 2 times 8 MiB
  EXPECT_EQ(step(1000), 3);
  budget.SetDeviceLimit(kCuda, MemoryBudget::kUnlimited);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(2 * kMiB), 3);
  EXPECT_GE(budget.Of(kCuda).taken_bytes, taken + 16 * kMiB);
}

struct Batch {
  SlotLease lease;  // first: it goes last
  NDArray x, y;
};

Batch Make(RingWorkspace& ring, int number) {
  RingSlotScope slot(ring);
  Batch batch;
  batch.x = Full({300}, number);
  const NDArray scratch = batch.x * 3.0;
  batch.y = scratch + batch.x;
  batch.lease = slot.Commit();
  return batch;
}

TEST_F(MemoryOnCuda, RingsCarryBatchesBetweenThreads) {
  constexpr int kBatches = 60;
  RingWorkspace ring("ring", WorkspaceConfig::Ring(3), kCuda);
  // A slot takes what was learned when it is opened: each of the three has had a batch.
  for (int round = 0; round < 4; ++round) {
    const Batch first = Make(ring, 0), second = Make(ring, 0), third = Make(ring, 0);
  }
  RingChannel<Batch> channel(ring);
  EmulatedCuda::Counters learned;
  std::jthread producer([&] {
    for (int i = 0; i < kBatches; ++i) {
      if (i == 20) learned = EmulatedCuda::Get().counters();
      Batch batch = Make(ring, i);
      SlotLease lease = std::move(batch.lease);
      if (!channel.Push(std::move(lease), std::move(batch))) return;
    }
    channel.Close();
  });
  int popped = 0;
  while (std::optional<RingChannel<Batch>::Item> item = channel.Pop()) {
    EXPECT_EQ(item->value.y.device(), kCuda);
    ASSERT_EQ(item->value.x.ToVector<float>(), std::vector<float>(300, 1.0f * popped));
    ASSERT_EQ(item->value.y.ToVector<float>(), std::vector<float>(300, 4.0f * popped));
    ++popped;
  }
  producer.join();
  EXPECT_EQ(popped, kBatches);
  const EmulatedCuda::Counters after = EmulatedCuda::Get().counters();
  EXPECT_EQ(after.maps, learned.maps);
  EXPECT_EQ(after.unmaps, learned.unmaps);
  EXPECT_EQ(after.pool_allocations, learned.pool_allocations);
  EXPECT_EQ(ring.stats().misses, 0u);
}

TEST_F(MemoryOnCuda, ARefusedSlotLosesThatBatchOnly) {
  FaultPlan& faults = EmulatedCuda::Get().allocation_faults();
  int refused = 0;
  for (int64_t n = 0; n < 40; ++n) {
    RingWorkspace ring("ring", WorkspaceConfig::Ring(2), kCuda);
    faults.FailRequest(n, 5);  // nor served by trimming the pool or by the Reclaimer
    int made = 0;
    for (int i = 0; i < 6; ++i) {
      try {
        const Batch batch = Make(ring, i);
        ASSERT_EQ(batch.y.At<float>({299}), 4 * i);
        ++made;
      } catch (const Error&) {
        ++refused;
      }
    }
    const bool happened = faults.failed() > 0;
    faults.Clear();
    ASSERT_GE(made, 2) << "request " << n;
    const Batch next = Make(ring, 9);
    ASSERT_EQ(next.y.At<float>({0}), 36);
    if (!happened) break;
  }
  EXPECT_GT(refused, 1);
}

// What makes a view dense is on its device.
TEST_F(MemoryOnCuda, GradientsOfGlobalPoolsTakeViews) {
  const NDArray numbers = Arange(0, 12, 1, DType::kFloat32).Reshape({3, 4});
  const NDArray here = numbers.Transpose(), there = numbers.To(kCuda).Transpose();
  const NDArray gradient = GlobalAveragePool2dGrad(there, {4, 2, 2, 3});
  EXPECT_EQ(gradient.device(), kCuda);
  EXPECT_EQ(gradient.ToVector<float>(),
            GlobalAveragePool2dGrad(here, {4, 2, 2, 3}).ToVector<float>());
}

}  // namespace
}  // namespace tidepool
