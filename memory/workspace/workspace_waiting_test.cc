// Streams of cycles that never repeat: planning waits, and nothing is written down of requests that nobody plans for.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

WorkspaceConfig Learning() {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  return config;
}

int64_t Noted() { return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace); }

// Requests of the open cycle, drawn anew; about one in eight is released before the end.
std::vector<BufferHandle> Draw(std::mt19937_64& random, size_t requests) {
  std::vector<BufferHandle> alive;
  for (size_t i = 0; i < requests; ++i) {
    alive.push_back(BufferHandle(AllocateHere(1 + random() % 300)));
    if (random() % 8 == 0) alive[random() % alive.size()].Reset();
  }
  return alive;
}

void DrawCycle(Workspace& workspace, std::mt19937_64& random, size_t requests) {
  WorkspaceScope scope(workspace);
  Draw(random, requests);
}

// One whose planning waits.
void Wait(Workspace& workspace, std::mt19937_64& random) {
  for (int i = 0; i < 100; ++i) DrawCycle(workspace, random, 40);
  ASSERT_GT(workspace.stats().cycles_not_planned, 50u);
  ASSERT_EQ(workspace.stats().plans_kept, 0u);
}

// What is alive is told from what is not although no request has a slot.
void ExpectApart(const std::vector<BufferHandle>& arrays) {
  std::vector<std::pair<const std::byte*, size_t>> places;
  for (const BufferHandle& array : arrays) {
    if (array) places.emplace_back(array->data, array->bytes);
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i) {
    ASSERT_LE(places[i - 1].first + places[i - 1].second, places[i].first);
  }
}

// 128 bytes of its record, 24 of its range, and what lists of these have to spare: what was written down of the first
// cycles goes when waiting begins.
TEST(WorkspaceWaiting, ARequestCostsItsRecordAndItsRange) {
  constexpr size_t kRequests = 20000;
  std::mt19937_64 random(1);
  const int64_t before = Noted();
  Workspace workspace("w", Learning());
  for (int i = 0; i < 10; ++i) DrawCycle(workspace, random, kRequests + random() % 100);
  EXPECT_LE(workspace.stats().plans, 1u) << "one of so many requests is made on trust";
  EXPECT_EQ(workspace.stats().plans_kept, 0u);
  EXPECT_LE(Noted() - before, static_cast<int64_t>(kRequests * 180));
}

// Beside a kind that repeats: the others leave its plan, and from there on nothing of them is written down.
TEST(WorkspaceWaiting, WhatHasLeftAPlanForGoodIsNotWrittenDown) {
  constexpr size_t kRequests = 20000;
  std::mt19937_64 random(3);
  const int64_t before = Noted();
  Workspace workspace("w", Learning());
  const auto repeated = [&] {
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> alive;
    for (size_t i = 0; i < 100; ++i) alive.push_back(BufferHandle(AllocateHere(64 * (i + 1))));
  };
  for (int i = 0; i < 5; ++i) repeated();
  for (int i = 0; i < 40; ++i) {
    DrawCycle(workspace, random, kRequests);
    repeated();
  }
  EXPECT_EQ(workspace.stats().plans_kept, 1u);
  EXPECT_LE(Noted() - before, static_cast<int64_t>(kRequests * 190));
  const uint64_t misses = workspace.stats().misses;
  for (int i = 0; i < 10; ++i) repeated();
  EXPECT_EQ(workspace.stats().misses, misses);
}

TEST(WorkspaceWaiting, WhatBeginsToRepeatIsFollowedAfterThreeComings) {
  std::mt19937_64 random(4);
  Workspace workspace("w", Learning());
  Wait(workspace, random);
  const uint64_t made = workspace.stats().plans;
  for (int coming = 1; coming <= 5; ++coming) {
    std::mt19937_64 same(5);
    const uint64_t misses = workspace.stats().misses;
    DrawCycle(workspace, same, 40);
    EXPECT_EQ(workspace.stats().plans, made + (coming >= 3)) << coming;
    if (coming <= 3) continue;
    EXPECT_EQ(workspace.stats().misses, misses);
    EXPECT_EQ(workspace.stats().planned_requests, 40u);
  }
}

TEST(WorkspaceWaiting, CountersAreAsTheyAreOtherwise) {
  std::mt19937_64 random(6);
  Workspace workspace("w", Learning());
  Wait(workspace, random);
  const WorkspaceStats before = workspace.stats();
  WorkspaceScope scope(workspace);
  std::vector<BufferHandle> alive;
  size_t bytes = 0;
  for (size_t i = 0; i < 30; ++i) {
    alive.push_back(BufferHandle(AllocateHere(64 * (1 + i % 3))));
    bytes += 64 * (1 + i % 3);
    EXPECT_EQ(workspace.bytes_this_cycle(), bytes);
    const WorkspaceStats now = workspace.stats();
    EXPECT_EQ(now.hits + now.spills, before.hits + before.spills + i + 1);
  }
  ExpectApart(alive);
  EXPECT_NE(alive[3]->id, alive[4]->id);
}

// Arrays that are alive, closed here and closed on another thread when their cycle ends.
TEST(WorkspaceWaiting, WhatOutlivesItsCycleIsFoundWithoutSlots) {
  std::mt19937_64 random(7);
  Workspace workspace("w", Learning());
  Wait(workspace, random);
  std::vector<BufferHandle> left;
  uint64_t leaked = workspace.stats().leaked_arrays;
  for (int cycle = 0; cycle < 50; ++cycle) {
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> alive = Draw(random, 60);
    const auto some = [&]() -> BufferHandle& {
      for (;;) {
        BufferHandle& one = alive[random() % alive.size()];
        if (one) return one;
      }
    };
    // Closed here: its bytes are used again at once, its record not.
    BufferHandle closed = std::move(some());
    const size_t bytes = closed->bytes;
    const std::byte* const data = closed->data;
    closed->Close();
    const BufferHandle again(AllocateHere(bytes));
    EXPECT_EQ(again->data, data);
    EXPECT_NE(again.get(), closed.get());
    BufferHandle elsewhere = std::move(some());
    std::thread([&] { elsewhere->Close(); }).join();
    BufferHandle kept = std::move(some());
    ExpectApart(alive);
    left.push_back(std::move(closed));
    left.push_back(std::move(elsewhere));
    left.push_back(std::move(kept));
    ++leaked;  // `kept`
    if (cycle % 3 == 0)
      left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(left.size() / 2));
  }
  EXPECT_EQ(workspace.stats().leaked_arrays, leaked);
  for (const BufferHandle& one : left) EXPECT_FALSE(one->IsAlive());
  EXPECT_EQ(workspace.stats().plans_kept, 0u);
  // None of their bytes is counted, or lent to somebody, any more.
  WorkspaceScope scope(workspace);
  left.clear();
  ExpectApart(Draw(random, 100));
}

// Cycles whose owner closes what is left, while they are recorded and after: handles of older ones are closed, or go,
// in the middle of later ones.
TEST(WorkspaceWaiting, WhatAnOwnedCycleLeavesIsNobodysLater) {
  std::mt19937_64 random(10);
  Workspace workspace("w", Learning());
  std::vector<BufferHandle> left;
  for (int cycle = 0; cycle < 200; ++cycle) {
    WorkspaceScope scope(workspace);
    CurrentPlace()->OwnCycle();
    std::vector<BufferHandle> alive = Draw(random, 40);
    for (BufferHandle& old : left) {
      if (random() % 2 == 0) old->Close();
    }
    left.clear();
    for (int i = 0; i < 20; ++i) alive.push_back(BufferHandle(AllocateHere(1 + random() % 300)));
    ExpectApart(alive);
    for (BufferHandle& one : alive) {
      if (one && random() % 4 == 0) left.push_back(one);
    }
    alive.resize(10);
  }
  EXPECT_EQ(workspace.stats().leaked_arrays, 0u);
  EXPECT_GT(workspace.stats().cycles_not_planned, 100u);
}

// Requests outside of the pages have no slot either.
TEST(WorkspaceWaiting, WhatLiesOutsideIsGivenBackAtTheEndOfItsCycle) {
  std::mt19937_64 random(8);
  Workspace workspace("w", Learning());
  Wait(workspace, random);
  BufferHandle left;
  {
    WorkspaceScope scope(workspace);
    const std::vector<BufferHandle> alive = Draw(random, 20);
    left = BufferHandle(AllocateHere(size_t{8} << 20));
    EXPECT_EQ(workspace.stats().leaked_arrays, 0u);
  }
  EXPECT_EQ(workspace.stats().leaked_arrays, 1u);
  EXPECT_FALSE(left->IsAlive());
  WorkspaceScope scope(workspace);
  left.Reset();
  ExpectApart(Draw(random, 60));
}

// What is refused says how much is free in one piece.
TEST(WorkspaceWaiting, ARefusalTellsTheLargestFreePiece) {
  WorkspaceConfig config = Learning();
  config.policy_spill = SpillPolicy::kFail;
  config.initial_size = 1 << 16;
  Workspace workspace("w", config);
  std::mt19937_64 random(9);
  Wait(workspace, random);
  WorkspaceScope scope(workspace);
  const BufferHandle first(AllocateHere(4096));
  BufferHandle second(AllocateHere(4096));
  const BufferHandle third(AllocateHere(16384));
  second.Reset();
  try {
    AllocateHere(65536);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("45056 of 65536 bytes free, 40960 of them in one piece"),
              std::string::npos)
        << error.message();
  }
}

// Numbers come by the block, and when they are used up others have had the next one meanwhile.
TEST(WorkspaceWaiting, NumbersOfArraysAreNobodyElses) {
  std::mt19937_64 random(11);
  std::vector<uint64_t> ids;
  const auto add = [&](Workspace& workspace, uint64_t requests) {
    WorkspaceScope scope(workspace);
    while (requests-- > 0) ids.push_back(BufferHandle(AllocateHere(64))->id);
  };
  Workspace one("one", Learning()), other("other", Learning());
  Wait(one, random);
  Wait(other, random);
  add(one, 100);
  add(other, 100);
  add(one, kBufferIdsAtOnce);
  add(other, 100);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

// They are free before pages are used that were not yet.
TEST(WorkspaceWaiting, WhatOtherThreadsReleaseIsUsedAgain) {
  std::mt19937_64 random(12);
  Workspace workspace("w", Learning());
  for (int cycle = 0; cycle < 10; ++cycle) {
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> alive;
    for (int i = 0; i < 64; ++i)
      alive.push_back(BufferHandle(AllocateHere(16384 + random() % 8192)));
  }
  WorkspaceScope scope(workspace);
  for (int i = 0; i < 32; ++i) {
    BufferHandle array(AllocateHere(16384 + random() % 8192));
    std::thread([&] { array.Reset(); }).join();
  }
  EXPECT_LE(workspace.offset(), 2u * 24576);
}

}  // namespace
}  // namespace tidepool
