// A learned ring with a producer and a reader thread: no system call for memory, no page fault and
// no C++ allocation on either side. And what does take long, planning first of all, nobody waits
// for.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"

namespace {
std::atomic<int64_t> allocations{0};
// Called by this thread's next allocation of 1 KiB or more, and by its next free of so much.
thread_local void (*at_large_allocation)() = nullptr;
thread_local void (*at_free)() = nullptr;
}  // namespace

namespace {
void NoteAllocation(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (at_large_allocation != nullptr && bytes >= 1024)
    std::exchange(at_large_allocation, nullptr)();
}
void NoteFree(size_t bytes) {
  if (at_free != nullptr && bytes >= 1024) std::exchange(at_free, nullptr)();
}
}  // namespace

void* operator new(size_t bytes) {
  NoteAllocation(bytes);
  if (void* data = std::malloc(bytes)) return data;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {  // slots among them
  NoteAllocation(bytes);
  const auto unit = static_cast<size_t>(alignment);
  if (void* data = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return data;
  throw std::bad_alloc();
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t bytes) noexcept {
  NoteFree(bytes);
  std::free(data);
}
void operator delete(void* data, size_t bytes, std::align_val_t) noexcept {
  NoteFree(bytes);
  std::free(data);
}

namespace tidepool {
namespace {

struct Batch {
  BufferHandle features, labels;
};
using Channel = RingChannel<Batch>;

struct Counts {
  int64_t allocations_, asked, faults, calls;
  static Counts Now() {
    return {allocations.load(), MemoryTracker::Global().system_allocations(), PageFaults(),
            MemorySystemCalls()};
  }
};

void RunSteady(const WorkspaceConfig& config, bool vary) {
  constexpr int kWarm = 400, kBatches = 2000;
  PrefaultProgram();
  RingWorkspace ring("ring", config);
  Channel channel(ring);
  std::atomic<bool> counted{false};
  std::thread producer([&] {
    for (int i = 0; i < kWarm + kBatches; ++i) {
      const size_t rows = vary ? 1 + i * 7 % 100 : 100;
      RingSlotScope slot(ring);
      {
        BufferHandle raw(AllocateHere(rows * 784));
        std::memset(raw->data, i, raw->bytes);
      }
      Batch batch{BufferHandle(AllocateHere(rows * 784 * 4)), BufferHandle(AllocateHere(rows * 4))};
      std::memset(batch.features->data, i, batch.features->bytes);
      channel.Push(slot.Commit(), std::move(batch));
    }
    channel.Close();
    while (!counted) std::this_thread::yield();  // a thread's end gives its stack back
  });
  // Deep enough once, so that every slot has been used.
  while (channel.size() < static_cast<size_t>(config.ring_slots)) std::this_thread::yield();
  Counts before{};
  for (int i = 0; i < kWarm + kBatches; ++i) {
    if (i == kWarm) before = Counts::Now();
    std::optional<Channel::Item> item = channel.Pop();
    ASSERT_TRUE(item);
    ASSERT_EQ(static_cast<unsigned char>(item->value.features->data[0]),
              static_cast<unsigned char>(i));
  }
  const Counts after = Counts::Now();
  counted = true;
  producer.join();
  EXPECT_EQ(after.allocations_, before.allocations_);
  EXPECT_EQ(after.asked, before.asked);
  EXPECT_EQ(after.calls, before.calls);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(after.faults, before.faults);
#endif
}

TEST(RingSteady, TakesNothingFromTheSystem) {
  std::string reason;
  if (!StartCountingMemorySystemCalls(&reason)) {
    std::cout << "system calls are not counted: " << reason << std::endl;
  }
  RunSteady(WorkspaceConfig::Ring(4), /*vary=*/false);
  RunSteady(WorkspaceConfig::Ring(4), /*vary=*/true);
  WorkspaceConfig totals = WorkspaceConfig::Ring(3);
  totals.policy_learning = LearningPolicy::kFirstLoop;
  RunSteady(totals, /*vary=*/false);
}

// Kinds of batches in turns, where one is served by the places of a larger one: that it needs less is
// looked at each time.
TEST(RingSteady, KindsInTurnsAllocateNothing) {
  WorkspaceConfig config = WorkspaceConfig::Ring(1);
  config.policy_learning = LearningPolicy::kTraining;
  for (const int requests : {1, 5000}) {
    RingWorkspace ring("ring", config);
    std::vector<BufferHandle> arrays(requests);
    int64_t before = 0;
    const int batches = requests == 1 ? 3000 : 60;
    for (int batch = 0; batch < batches; ++batch) {
      if (batch == batches * 2 / 3) before = allocations.load();
      RingSlotScope slot(ring);
      for (BufferHandle& array : arrays) {
        array = BufferHandle(AllocateHere(batch % 2 == 0 ? 12288 : 2048));
        array.Reset();
      }
      SlotLease lease = slot.Commit();
    }
    EXPECT_EQ(allocations.load(), before) << requests;
    EXPECT_EQ(ring.stats().misses + ring.stats().idle, 1u) << requests;
  }
}

// ---- nobody waits for what takes long -----------------------------------------------------------

// What a thread meets in the midst of long work: it goes on when another one has released its
// lease, or after a time, which is a failure.
std::atomic<bool> in_the_midst{false}, released{false}, waited_in_vain{false};

void WaitForTheRelease() {
  in_the_midst = true;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!released && !waited_in_vain) {
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() > limit) waited_in_vain = true;
  }
}

void WaitAndFail() {
  WaitForTheRelease();
  throw std::bad_alloc();
}

SlotLease Commit(RingWorkspace& ring, int requests, bool wait) {
  RingSlotScope slot(ring);
  std::vector<BufferHandle> arrays;
  for (int i = 0; i < requests; ++i) arrays.emplace_back(AllocateHere(64 + i));
  if (wait) at_large_allocation = WaitForTheRelease;
  SlotLease lease = slot.Commit();
  at_large_allocation = nullptr;
  return lease;
}

// `work` arms a hook; while that waits, another thread releases `lease` and looks at the ring.
void ExpectNoWaitFor(SlotLease lease, RingWorkspace* looked_at, const std::function<void()>& work) {
  in_the_midst = released = waited_in_vain = false;
  std::thread worker(work);
  while (!in_the_midst) std::this_thread::yield();
  lease.Release();
  if (looked_at != nullptr) {
    EXPECT_EQ(looked_at->stats().kept, 0);
    EXPECT_NE(looked_at->Dump(), "");
  }
  released = true;
  worker.join();
  EXPECT_FALSE(waited_in_vain);
}

TEST(RingWithoutWaits, PlanningHoldsUpNoRelease) {
  RingWorkspace ring("ring", WorkspaceConfig::Ring(3));
  SlotLease lease;
  {
    RingSlotScope slot(ring);  // opened before there is a plan, and without requests: it makes none
    lease = slot.Commit();
  }
  ExpectNoWaitFor(std::move(lease), &ring, [&] { Commit(ring, 1000, /*wait=*/true); });
  EXPECT_EQ(ring.stats().plans, 1);
  EXPECT_EQ(ring.stats().idle, 3);
}

TEST(RingWithoutWaits, MakingATemporarySlotHoldsUpNoRelease) {
  WorkspaceConfig config = WorkspaceConfig::Ring(1);
  config.policy_ring_full = RingFullPolicy::kSpill;
  RingWorkspace ring("ring", config);
  ExpectNoWaitFor(Commit(ring, 1, /*wait=*/false), &ring, [&] {
    at_large_allocation = WaitForTheRelease;
    RingSlotScope slot(ring);
  });
  EXPECT_EQ(ring.stats().temporary, 1);
  EXPECT_EQ(ring.stats().idle, 1);
}

// A producer that has not come back with its slot needs the ring as one does that has it open.
TEST(RingWithoutWaits, TheRingMayGoWhileATemporarySlotIsMade) {
  for (const bool fails : {false, true}) {
    WorkspaceConfig config = WorkspaceConfig::Ring(1);
    config.policy_ring_full = RingFullPolicy::kSpill;
    auto ring = std::make_unique<RingWorkspace>("ring", config);
    RingWorkspace& opened = *ring;
    SlotLease lease = Commit(*ring, 1, /*wait=*/false);
    in_the_midst = released = waited_in_vain = false;
    bool threw = false;
    std::thread worker([&] {
      at_large_allocation = fails ? WaitAndFail : WaitForTheRelease;
      try {
        RingSlotScope slot(opened);
        BufferHandle array(AllocateHere(64));
      } catch (const std::bad_alloc&) {
        threw = true;
      }
    });
    while (!in_the_midst) std::this_thread::yield();
    lease.Release();
    ring.reset();
    released = true;
    worker.join();
    EXPECT_EQ(threw, fails);
    EXPECT_FALSE(waited_in_vain);
  }
}

TEST(RingWithoutWaits, DestroyingTheRingHoldsUpNoRelease) {
  auto ring = std::make_unique<RingWorkspace>("ring", WorkspaceConfig::Ring(2));
  ExpectNoWaitFor(Commit(*ring, 1, /*wait=*/false), nullptr, [&] {
    at_free = WaitForTheRelease;
    ring.reset();
  });
}

}  // namespace
}  // namespace tidepool
