// A learned ring with a producer and a reader thread: no system call for memory, no page fault and no
// C++ allocation on either side.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"

namespace {
std::atomic<int64_t> allocations{0};
}

void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* data = std::malloc(bytes)) return data;
  throw std::bad_alloc();
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

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

}  // namespace
}  // namespace tidepool
