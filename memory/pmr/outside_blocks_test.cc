// The process's blocks: callbacks in the middle of a request or a release, and what is kept when
// nobody has any.
#include <algorithm>
#include <atomic>
#include <list>
#include <memory_resource>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/outside_arenas.h"
#include "tidepool/memory/pmr/size_classes.h"
#include "tidepool/memory/pmr/workspace_resource.h"
#include "tidepool/memory/provider/poison.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

// The process may take so much more while it lives.
class ProcessLimit {
 public:
  explicit ProcessLimit(int64_t more) {
    MemoryBudget& budget = MemoryBudget::Global();
    budget.SetProcessLimit(budget.process().taken_bytes + more);
  }
  ~ProcessLimit() { MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited); }
};

using Texts = std::pmr::list<std::pmr::string>;

// Until memory ends.
void FillUp(Texts& texts) {
  try {
    for (int i = 0; i < 100000; ++i) texts.emplace_back(100, 'y');
  } catch (const std::bad_alloc&) {
  }
}

int64_t AllocatedBytes() {
  return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated);
}

// Of each size class, more than a span of it: each has its chunk in another one at the end.
void UseAllClasses() {
  std::vector<void*> blocks[internal::kSizeClasses];
  for (int i = 0; i < internal::kSizeClasses; ++i) {
    const size_t bytes = internal::kClassBytes[i];
    for (size_t sum = 0; sum < (size_t{1} << 20) + 70000; sum += bytes) {
      blocks[i].push_back(AllocateBytesHere(bytes, 8));
    }
  }
  for (int i = 0; i < internal::kSizeClasses; ++i) {
    for (void* const block : blocks[i]) ReleaseBytes(block, internal::kClassBytes[i], 8);
  }
}

TEST(OutsideBlocksTest, ACallbackMayLetGoOfThem) {
  Texts cache(ResourceHere());
  for (int i = 0; i < 100; ++i) cache.emplace_back(100, 'x');
  bool let_go = false;
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind != MemoryEvent::Kind::kLevel) return;
    cache.clear();
    let_go = true;
  });
  Texts more(ResourceHere());
  const ProcessLimit limit(int64_t{8} << 20);
  FillUp(more);
  EXPECT_TRUE(let_go);
}

TEST(OutsideBlocksTest, ACallbackMayMakeThem) {
  int made = 0;
  const MemoryEventCallback watch([&](const MemoryEvent&) {
    const std::pmr::string text(100, 'z', ResourceHere());
    made += text.size() == 100;
  });
  Texts more(ResourceHere());
  const ProcessLimit limit(int64_t{8} << 20);
  FillUp(more);
  EXPECT_GT(made, 0);
}

TEST(OutsideBlocksTest, ACallbackOfAFallingLevelMayMakeThem) {
  Texts more(ResourceHere());
  const ProcessLimit limit(int64_t{8} << 20);
  FillUp(more);
  int falls = 0;
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind != MemoryEvent::Kind::kLevel || event.level >= event.previous) return;
    ++falls;
    const std::pmr::string text(100, 'z', ResourceHere());
  });
  more.clear();
  EXPECT_GT(falls, 0);
}

// A callback that waits for a lock of the program's, which another thread holds while it makes
// blocks.
TEST(OutsideBlocksTest, ACallbackMayTakeALockUnderWhichOthersMakeThem) {
  std::mutex mutex;
  std::pmr::list<std::pmr::string> shared(ResourceHere());
  const MemoryEventCallback watch([&](const MemoryEvent&) {
    std::lock_guard<std::mutex> lock(mutex);
    shared.emplace_back(100, 's');
    shared.clear();
  });
  std::atomic<bool> done{false};
  std::atomic<bool> ready{false};
  std::thread other([&] {
    // It has an arena of its own, and there a chunk with room, before it holds the lock.
    while (internal::outside_thread.arena == nullptr) std::pmr::list<int>(64, 1, ResourceHere());
    const std::pmr::list<int> keeps_a_chunk(1, 1, ResourceHere());
    ready = true;
    while (!done) {
      // Of a size that has chunks with room: nothing is asked for here, so no callback runs.
      std::lock_guard<std::mutex> lock(mutex);
      std::pmr::list<int> numbers(64, 1, ResourceHere());
    }
  });
  // It gets one when it has often come without the bias, which each thread that comes to the common one takes from it. This
  // thread may have one of its own by now, and comes there no more.
  const auto come = [] {
    for (int i = 0; i < 1000; ++i) std::pmr::list<int>(64, 1, ResourceHere());
  };
  while (!ready) std::thread(come).join();
  for (int round = 0; round < 20; ++round) {
    Texts more(ResourceHere());
    const ProcessLimit limit(int64_t{4} << 20);
    FillUp(more);
  }
  done = true;
  other.join();
}

TEST(OutsideBlocksTest, LittleIsKeptWhenNobodyHasAnyAndNothingAfterReclaiming) {
  Reclaimer::Global().RunNow();
  const int64_t before = AllocatedBytes();
  UseAllClasses();
  EXPECT_LE(AllocatedBytes() - before, int64_t{6} << 20);
  EXPECT_GT(AllocatedBytes() - before, 0);
  EXPECT_GT(Reclaimer::Global().RunNow(), 0);
  EXPECT_LE(AllocatedBytes(), before);
  // And they serve again.
  UseAllClasses();
}

// What is kept for the next block is enough that a single one asks for nothing.
TEST(OutsideBlocksTest, BlocksThatComeAndGoAskTheSystemForNothing) {
  UseAllClasses();
  for (int i = 0; i < internal::kSizeClasses; ++i) {
    ReleaseBytes(AllocateBytesHere(internal::kClassBytes[i], 8), internal::kClassBytes[i], 8);
  }
  const int64_t before = MemoryTracker::Global().system_allocations();
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < internal::kSizeClasses; ++i) {
      ReleaseBytes(AllocateBytesHere(internal::kClassBytes[i], 8), internal::kClassBytes[i], 8);
    }
  }
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
}

// Blocks of 1 to 100,000 bytes, so many in all; then none.
void ComeAndGo(int64_t bytes) {
  std::mt19937 random(1);
  std::vector<std::pair<char*, size_t>> blocks;
  for (int64_t sum = 0; sum < bytes;) {
    const size_t size = random() % 2 == 0 ? 1 + random() % 4096 : 4097 + random() % 96000;
    blocks.emplace_back(static_cast<char*>(AllocateBytesHere(size)), size);
    blocks.back().first[size - 1] = 1;
    sum += static_cast<int64_t>(size);
  }
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (const auto& [data, size] : blocks) ReleaseBytes(data, size);
}

TEST(OutsideBlocksTest, WhatComesAndGoesSettlesInMemoryAndGoesWhenItIsNotNeededAnyMore) {
  constexpr int64_t kMiB = 1 << 20;
  Reclaimer::Global().RunNow();
  const int64_t before = AllocatedBytes();
  ComeAndGo(32 * kMiB);
  EXPECT_LE(AllocatedBytes() - before, 7 * kMiB);  // once is not a habit
  for (int round = 0; round < 4; ++round) ComeAndGo(32 * kMiB);
  const int64_t asked = MemoryTracker::Global().system_allocations();
  for (int round = 0; round < 50; ++round) ComeAndGo(32 * kMiB);
  EXPECT_LE(MemoryTracker::Global().system_allocations(), asked + 10);
  EXPECT_LE(AllocatedBytes() - before, 40 * kMiB);
  EXPECT_GT(AllocatedBytes() - before, 24 * kMiB);
  // What is used less now keeps less.
  for (int round = 0; round < 3000; ++round) ComeAndGo(kMiB);
  EXPECT_LE(AllocatedBytes() - before, 8 * kMiB);
  EXPECT_GT(Reclaimer::Global().RunNow(), 0);
  EXPECT_LE(AllocatedBytes(), before);
}

// The heap's errors for its own blocks, and by what is in front of a block those of ours.
TEST(OutsideBlocksTest, AReleaseOfWhatIsNoSuchBlockEndsTheProgramAndSaysWhatWasFound) {
  for (const bool inside : {false, true}) {
    Workspace workspace("w", WorkspaceConfig::Inference());
    std::optional<WorkspaceScope> scope;
    if (inside) scope.emplace(workspace);
    void* const small = AllocateBytesHere(100);
    void* const large = AllocateBytesHere(100000);
    void* const other = AllocateBytesHere(100000);
    EXPECT_DEATH(ReleaseBytes(small, 200), "200 bytes are released at .*: no block of that size");
    EXPECT_DEATH(ReleaseBytes(large, 100001), "100001 bytes are released at .*: no block of that");
    if (!PoisonsBlocks()) {  // else it is found by that
      EXPECT_DEATH(
          {
            ReleaseBytes(large, 100000);
            ReleaseBytes(large, 100000);
          },
          "100000 bytes are released at .*: that block was released before");
    }
    ReleaseBytes(small, 100);
    ReleaseBytes(large, 100000);
    ReleaseBytes(other, 100000);
    if (!inside || PoisonsBlocks()) continue;
    // Of a block that outlived its cycle: what came back is looked at in the next one.
    void* const late = AllocateBytesHere(100);
    scope.reset();
    EXPECT_DEATH(
        {
          ReleaseBytes(late, 100);
          ReleaseBytes(late, 100);
          const WorkspaceScope next(workspace);
          ReleaseBytes(AllocateBytesHere(100), 100);
        },
        "released before");
    ReleaseBytes(late, 100);
  }
}

}  // namespace
}  // namespace tidepool
