// What a kernel uses keeps its bytes, wherever they are and whoever closes it meanwhile.
#include "tidepool/memory/pins.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

char imported_bytes[64];
std::atomic<int64_t> released;

BufferHandle Import() {
  return BufferHandle(NewImportedBuffer(
      imported_bytes, sizeof imported_bytes, [](void*) { ++released; }, nullptr));
}

// What a workspace that serves each request from the heap has of it.
int64_t Spilled() {
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  return snapshot[Host()][MemoryKind::kAllocated].current_bytes +
         snapshot[Host()][MemoryKind::kUnreferenced].current_bytes;
}

TEST(Pins, AnInnerScopeLeavesTheBytesToTheOuterOne) {
  released = 0;
  const BufferHandle x = Import();
  {
    PinScope outer;
    outer.Pin(x.get());
    outer.Publish();
    ASSERT_TRUE(x->IsAlive());
    std::thread([&] { x->Close(); }).join();
    {
      PinScope inner;  // a view of the same array, say
      inner.Pin(x.get());
      inner.Publish();
    }
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(Pins, OfTheThreadThatClosesCountToo) {
  released = 0;
  const BufferHandle x = Import();
  {
    PinScope pins;
    pins.Pin(x.get());
    pins.Publish();
    x->Close();
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(Pins, MoreThanOneRecordHolds) {
  released = 0;
  std::vector<BufferHandle> arrays;
  for (int i = 0; i < 200; ++i) arrays.push_back(Import());
  for (int scope = 0; scope < 2; ++scope) {
    PinScope pins;
    for (const BufferHandle& x : arrays) pins.Pin(x.get());
    pins.Publish();
    std::thread([&] {
      for (int i = 0; i < 100; ++i) arrays[static_cast<size_t>(100 * scope + i)]->Close();
    }).join();
    EXPECT_EQ(released, 100 * scope);
  }
  EXPECT_EQ(released, 200);
}

// Runs `during` while another thread has the buffer pinned.
template <typename During>
void WhilePinnedElsewhere(const BufferHandle& x, const During& during) {
  std::atomic<bool> pinned{false}, done{false};
  std::thread kernel([&, handle = x]() mutable {
    {
      PinScope pins;
      pins.Pin(handle.get());
      pins.Publish();
      EXPECT_TRUE(handle->IsAlive());
      pinned = true;
      pinned.notify_one();
      done.wait(false);
    }
    handle.Reset();
  });
  pinned.wait(false);
  during();
  done = true;
  done.notify_one();
  kernel.join();
}

TEST(Pins, AWorkspacesBytesWaitForAnotherThreadsKernel) {
  const int64_t before = Spilled();
  WorkspaceConfig config;
  config.policy_allocation = AllocationPolicy::kAlways;
  Workspace workspace("pinned", config);
  {
    WorkspaceScope scope(workspace);
    const BufferHandle x(AllocateHere(4096));
    WhilePinnedElsewhere(x, [&] {
      x->Close();
      EXPECT_FALSE(x->IsAlive());
      EXPECT_GE(Spilled(), before + 4096);
    });
  }
  EXPECT_EQ(Spilled(), before);
  EXPECT_EQ(workspace.stats().leaked_arrays, 0u);
}

TEST(Pins, ALeasedSlotsBytesWaitForAKernel) {
  WorkspaceConfig config = WorkspaceConfig::Ring(2);
  config.policy_allocation = AllocationPolicy::kAlways;
  RingWorkspace ring("pinned", config);
  BufferHandle x;
  SlotLease lease;
  {
    RingSlotScope slot(ring);
    x = BufferHandle(AllocateHere(4096));
    lease = slot.Commit();
  }
  const int64_t before = Spilled();
  WhilePinnedElsewhere(x, [&] {
    x->Close();
    EXPECT_FALSE(x->IsAlive());
    EXPECT_EQ(Spilled(), before);
  });
  EXPECT_EQ(Spilled(), before - 4096);  // with the kernel, not with the lease
}

// Host memory of the workspace that is innermost here is not pinned; of others that are open here
// neither, and of one that is open elsewhere it is.
TEST(Pins, InnermostIsTheScopesWorkspace) {
  Workspace a("a", WorkspaceConfig::Training()), b("b", WorkspaceConfig::Training());
  const BufferHandle heap(NewHeapBuffer(64));
  const auto pinned = [&heap](const BufferHandle& x) {
    PinScope with_heap;
    with_heap.Pin(heap.get());  // so that the thread has a record
    const int32_t before = internal::pin_record->depth.load(std::memory_order_relaxed);
    PinScope pins;
    pins.Pin(x.get());
    return internal::pin_record->depth.load(std::memory_order_relaxed) - before;
  };
  BufferHandle in_a, in_b;
  const auto innermost = [] { return internal::innermost_here; };
  std::optional<WorkspaceScope> outer(a);
  in_a = BufferHandle(AllocateHere(64));
  std::optional<WorkspaceScope> inner(b);
  in_b = BufferHandle(AllocateHere(64));
  EXPECT_EQ(innermost(), in_b->owner);
  EXPECT_EQ(pinned(in_a) + pinned(in_b), 0);
  {
    const ScopeOutOfWorkspaces out;
    EXPECT_EQ(innermost(), nullptr);
    EXPECT_EQ(pinned(in_a) + pinned(in_b), 0);
  }
  std::thread([&] {
    EXPECT_EQ(innermost(), nullptr);
    EXPECT_EQ(pinned(in_a), 1);
    Workspace c("c", WorkspaceConfig::Training());
    const WorkspaceScope scope(c);
    EXPECT_EQ(pinned(in_b), 1);
  }).join();
  {
    const BorrowScope borrowed(a);
    EXPECT_EQ(innermost(), in_a->owner);
  }
  EXPECT_EQ(innermost(), in_b->owner);
  in_a.Reset();
  outer.reset();  // before the one opened inside it, which is reported
  EXPECT_EQ(innermost(), in_b->owner);
  std::thread([&] { inner.reset(); }).join();  // ends with the next scope here
  EXPECT_EQ(innermost(), in_b->owner);
  in_b.Reset();
  { const WorkspaceScope next(a); }
  EXPECT_EQ(innermost(), nullptr);
}

// Whoever is last, the kernel or who closes, gives the bytes back: not both and not neither.
TEST(Pins, KernelsEndMeetsClosing) {
  constexpr int kRounds = 2000;
  released = 0;
  std::atomic<int> round{-1}, done{0};
  BufferHandle shared;
  std::thread kernel([&] {
    for (int r = 0; r < kRounds; ++r) {
      while (round.load(std::memory_order_acquire) < r)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      {
        PinScope pins;
        pins.Pin(shared.get());
        pins.Publish();
      }
      done.store(r + 1, std::memory_order_release);
    }
  });
  int64_t lost = 0;
  for (int r = 0; r < kRounds; ++r) {
    shared = Import();
    round.store(r, std::memory_order_release);
    for (int spin = r % 64; spin > 0; --spin) std::atomic_signal_fence(std::memory_order_seq_cst);
    shared->Close();
    while (done.load(std::memory_order_acquire) <= r) std::this_thread::yield();
    lost += r + 1 - released;
    released = r + 1;
  }
  kernel.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace tidepool
