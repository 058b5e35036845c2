// Cycles that memory is refused in, though what they have alive at once would fit: what is learned of them.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

// Nine arrays of which the third, the sixth and the ninth are kept, and a large one: 2.7 MB at once.
void LargeBehindSmall() {
  std::vector<BufferHandle> arrays;
  for (int i = 0; i < 9; ++i) arrays.push_back(New(300000));
  for (int i = 0; i < 9; ++i) {
    if (i % 3 != 0) arrays[i].Reset();
  }
  BufferHandle large = New(1800000);
}
constexpr int64_t kLargeBehindSmall = 9 * 300032 + 64;

// The memory of what runs within has a limit, as that of one owner.
class Limited {
 public:
  explicit Limited(int64_t bytes)
      : owner_(MemoryOwner::Process().Child(absl::StrCat("limited ", ++made_))), as_(owner_) {
    MemoryBudget::Global().SetOwnerLimit(owner_, Host(), bytes);
  }
  ~Limited() { MemoryBudget::Global().SetOwnerLimit(owner_, Host(), MemoryBudget::kUnlimited); }

 private:
  static int made_;
  MemoryOwner& owner_;
  MemoryOwnerScope as_;
};
int Limited::made_ = 0;

// How many of `cycles` cycles fail, and how many of the last quarter of them.
struct Failures {
  int all = 0;
  int late = 0;
};
Failures Repeat(int cycles, const std::function<void(int)>& cycle) {
  Failures failures;
  for (int i = 0; i < cycles; ++i) {
    try {
      cycle(i);
    } catch (const OutOfMemoryError&) {
      ++failures.all;
      failures.late += i >= cycles - cycles / 4;
    }
  }
  return failures;
}

TEST(WorkspaceRefused, AStepThatFitsIsNotRefusedForEverWhereItsWorkspaceIsNew) {
  for (const int64_t limit : {kLargeBehindSmall + 8192, int64_t{3500000}, int64_t{4500000}}) {
    const Limited limited(limit);
    Workspace workspace("step");
    const Failures failures = Repeat(20, [&](int) {
      WorkspaceScope scope(workspace);
      LargeBehindSmall();
    });
    // Blocks that lie by themselves have whole pages.
    EXPECT_LE(failures.all, limit < 3000000 ? 2 : 0) << limit;
    EXPECT_EQ(workspace.stats().failed_cycles, static_cast<uint64_t>(failures.all));
    EXPECT_LE(static_cast<int64_t>(workspace.size()), limit);
  }
}

// The error is met within the scope, by a program that has no exceptions of its own.
TEST(WorkspaceRefused, NorWhereTheErrorIsMetWithinTheCycle) {
  const Limited limited(3500000);
  Workspace workspace("step");
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    WorkspaceScope scope(workspace);
    try {
      LargeBehindSmall();
    } catch (const OutOfMemoryError&) {
      ++refused;
    }
  }
  EXPECT_LE(refused, 1);
}

TEST(WorkspaceRefused, NorInAPool) {
  const Limited limited(3500000);
  WorkspacePool pool("requests");
  const Failures failures = Repeat(20, [&](int) {
    const WorkspaceLease lease = pool.Lease();
    WorkspaceScope scope(*lease);
    LargeBehindSmall();
  });
  EXPECT_LE(failures.all, 1);
}

// Pages of one size and nothing beside them.
TEST(WorkspaceRefused, NorInPagesOfAFixedSize) {
  WorkspaceConfig config;
  config.initial_size = static_cast<size_t>(kLargeBehindSmall);
  config.policy_spill = SpillPolicy::kFail;
  Workspace workspace("step", config);
  const Failures failures = Repeat(20, [&](int) {
    WorkspaceScope scope(workspace);
    LargeBehindSmall();
  });
  EXPECT_LE(failures.all, 1);
}

// A cycle of many requests comes further each time, though where it is refused it has not been before.
TEST(WorkspaceRefused, DrawnStepsOfManyRequestsComeThrough) {
  for (const size_t most : {size_t{100000}, size_t{2000000}}) {
    for (int seed = 1; seed <= 12; ++seed) {
      std::mt19937_64 random(static_cast<uint64_t>(seed));
      // Positive: an array of so many bytes; else the one with that number goes.
      std::vector<int64_t> steps;
      std::vector<int64_t> sizes;
      std::vector<size_t> alive;
      int64_t now = 0, peak = 0;
      while (sizes.size() < 60) {
        if (alive.size() > 4 && random() % 100 < 48) {
          std::swap(alive[random() % alive.size()], alive.back());
          now -= sizes[alive.back()];
          steps.push_back(-static_cast<int64_t>(alive.back()));
          alive.pop_back();
          continue;
        }
        const auto bytes = static_cast<int64_t>(64 * (1 + random() % (most / 64)));
        alive.push_back(sizes.size());
        sizes.push_back(bytes);
        steps.push_back(bytes);
        peak = std::max(peak, now += bytes);
      }
      const auto play = [&](Workspace& workspace) {
        WorkspaceScope scope(workspace);
        std::vector<BufferHandle> arrays;
        for (const int64_t step : steps) {
          if (step > 0) arrays.push_back(New(static_cast<size_t>(step)));
          if (step <= 0) arrays[static_cast<size_t>(-step)].Reset();
        }
      };
      WorkspaceConfig config;
      config.plan_search_seconds = 0;
      Workspace unlimited("unlimited", config);
      for (int i = 0; i < 3; ++i) play(unlimited);
      const Limited limited(peak + peak / 10 + 65536);
      Workspace workspace("step", config);
      const Failures failures = Repeat(100, [&](int) { play(workspace); });
      EXPECT_EQ(failures.late, 0) << most << " " << seed;
      EXPECT_LE(failures.all, 30) << most << " " << seed;
      EXPECT_EQ(workspace.stats().plans_kept, 1u) << "beginnings of it are not kept beside it";
      EXPECT_EQ(workspace.stats().planned_peak_bytes, unlimited.stats().planned_peak_bytes)
          << "nor is it planned around them";
    }
  }
}

// What is asked for in vain, each time, and done without is no reason for larger pages nor for other plans.
TEST(WorkspaceRefused, WhatCannotBeHadIsNotPlannedFor) {
  // Of a size that is no length: there it is nothing to learn from.
  for (const bool pooled : {false, true}) {
    testing::internal::CaptureStderr();
    WorkspacePool pool("hopeful");
    Workspace workspace("hopeful");
    for (const size_t bytes : {size_t{1} << 62, size_t{1} << 63, SIZE_MAX - 1000}) {
      WorkspaceLease lease = pool.Lease();
      try {
        WorkspaceScope scope(pooled ? *lease : workspace);
        BufferHandle a = New(400000);
        New(bytes);
      } catch (const OutOfMemoryError&) {
      }
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << pooled;
  }
  for (const bool fails : {false, true}) {
    const Limited limited(8000000);
    Workspace workspace("hopeful");
    for (int i = 0; i < 40; ++i) {
      try {
        WorkspaceScope scope(workspace);
        BufferHandle a = New(400000), b = New(600000);
        a.Reset();
        try {
          New(size_t{1} << 33);
        } catch (const OutOfMemoryError&) {
          if (fails && i % 2 == 0) throw;
        }
        BufferHandle c = New(400000);
      } catch (const OutOfMemoryError&) {
      }
    }
    EXPECT_EQ(workspace.size(), 1000000u) << fails;
    EXPECT_EQ(workspace.stats().plans, 1u) << fails;
  }
}

// What a request needs to fit beside what is alive lies in gaps: of blocks outside, and of the pages.
TEST(WorkspaceRefused, StepsThatNeverComeAgainAreServedWithinWhatTheyNeed) {
  for (const bool pooled : {false, true}) {
    const Limited limited(4500000);
    Workspace workspace("ever different");
    WorkspacePool pool("ever different");
    std::mt19937_64 random(1);
    const Failures failures = Repeat(1000, [&](int) {
      WorkspaceLease lease;
      if (pooled) lease = pool.Lease();
      WorkspaceScope scope(pooled ? *lease : workspace);
      std::vector<BufferHandle> arrays;
      for (int i = 0; i < 9; ++i) arrays.push_back(New(200000 + 64 * (random() % 1500)));
      for (int i = 0; i < 9; ++i) {
        if (i % 3 != 0) arrays[i].Reset();
      }
      BufferHandle large = New(2700000 + 64 * (random() % 4000));
      std::memset(large->data, 1, large->bytes);
      for (int i = 0; i < 9; i += 3) std::memset(arrays[i]->data, 2, arrays[i]->bytes);
    });
    // A pool does without memory for what has no plan once it has seen that it is in the way, for ever longer.
    EXPECT_LE(failures.all, pooled ? 30 : 2) << pooled;
    EXPECT_LE(failures.late, pooled ? 6 : 0) << pooled;
    EXPECT_LE(workspace.stats().plans, 64u);
  }
}

// Of any order of releases. What is large is cut into what nobody else can use, unless it lies by itself.
TEST(WorkspaceRefused, NorAreDrawnStepsThatNeverComeAgain) {
  constexpr int64_t kMost = 4000000;
  for (const bool pooled : {false, true}) {
    int all = 0, late = 0;
    for (int seed = 1; seed <= 10; ++seed) {
      const Limited limited(kMost + kMost / 10 * (1 + seed % 3) + 262144);
      Workspace workspace("ever different");
      WorkspacePool pool("ever different");
      std::mt19937_64 random(static_cast<uint64_t>(seed));
      const Failures failures = Repeat(80, [&](int) {
        WorkspaceLease lease;
        if (pooled) lease = pool.Lease();
        WorkspaceScope scope(pooled ? *lease : workspace);
        std::vector<BufferHandle> arrays;
        int64_t now = 0;
        const auto drop = [&] {
          std::swap(arrays[random() % arrays.size()], arrays.back());
          now -= static_cast<int64_t>(arrays.back()->bytes), arrays.pop_back();
        };
        for (int i = 0; i < 120; ++i) {
          const double doublings = static_cast<double>(random() % 5000) / 1000;
          const auto bytes = static_cast<int64_t>(16384 * std::exp2(doublings)) & ~int64_t{63};
          while (now + bytes > kMost) drop();
          arrays.push_back(New(static_cast<size_t>(bytes)));
          now += bytes;
          if (random() % 100 < 30) drop();
        }
      });
      all += failures.all;
      late += failures.late;
    }
    EXPECT_LE(all, 60) << pooled << ": of 800";
    EXPECT_LE(late, 8) << pooled << ": of 200";
  }
}

// Nor are plans made for ever of what comes once and cannot be served.
TEST(WorkspaceRefused, StepsThatNeverComeAgainAreNotPlannedForEver) {
  const Limited limited(4500000);
  Workspace workspace("ever different");
  std::mt19937_64 random(1);
  Repeat(400, [&](int) {
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> arrays;
    for (int i = 0; i < 2000; ++i) {
      arrays.push_back(New(1000 + 64 * (random() % 15)));
      if (i % 2 == 0) arrays.back().Reset();
    }
    std::vector<BufferHandle> others;
    for (int i = 0; i < 3000; ++i) others.push_back(New(1000 + 64 * (random() % 50)));
  });
  EXPECT_LE(workspace.stats().plans, 64u);
}

// What is refused before anything was made, and done without, changes nothing: the cycle follows its plan.
TEST(WorkspaceRefused, AFirstRequestThatIsRefusedLeavesThePlan) {
  for (const bool pooled : {false, true}) {
    WorkspacePool pool("hopeful");
    Workspace workspace("hopeful");
    const auto cycle = [&] {
      WorkspaceLease lease;
      if (pooled) lease = pool.Lease();
      WorkspaceScope scope(pooled ? *lease : workspace);
      EXPECT_THROW(New(size_t{1} << 46), OutOfMemoryError);
      BufferHandle a = New(400000), b = New(600000);
      a.Reset();
      BufferHandle c = New(400000);
      std::memset(b->data, 1, b->bytes);
      std::memset(c->data, 1, c->bytes);
    };
    for (int i = 0; i < 6; ++i) cycle();
    const auto plans = [&] { return pooled ? pool.stats().plans : workspace.stats().plans; };
    const auto misses = [&] { return pooled ? pool.stats().misses : workspace.stats().misses; };
    const uint64_t plans_before = plans(), misses_before = misses();
    EXPECT_GE(plans_before, 1u);
    for (int i = 0; i < 50; ++i) cycle();
    EXPECT_EQ(plans(), plans_before) << pooled;
    EXPECT_EQ(misses(), misses_before) << pooled;
  }
}

// Below one's own limit nobody else's memory is asked for, where gaps of one's own do.
TEST(WorkspaceRefused, GapsGoBackWithoutAskingOthers) {
  int asked = 0;
  const Reclaimer::Registration other = Reclaimer::Global().Register("other", [&](ReclaimDepth) {
    ++asked;
    return int64_t{0};
  });
  const Limited limited(4500000);
  Workspace workspace("ever different");
  std::mt19937_64 random(1);
  Repeat(200, [&](int) {
    WorkspaceScope scope(workspace);
    std::vector<BufferHandle> arrays;
    for (int i = 0; i < 9; ++i) arrays.push_back(New(200000 + 64 * (random() % 1500)));
    for (int i = 0; i < 9; ++i) {
      if (i % 3 != 0) arrays[i].Reset();
    }
    BufferHandle large = New(2700000 + 64 * (random() % 4000));
  });
  EXPECT_LE(asked, 20);
}

// What was served once is served from then on: the whole cycle's plan is fitted into what there is as well as its beginnings.
TEST(WorkspaceRefused, AStepThatCameThroughComesThroughAgain) {
  int served = 0;
  for (int seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    constexpr size_t kMost = 4 << 20;
    // An array for each size; before it the oldest go, as many as make room, and behind every third one more.
    const auto drawn = [&] { return static_cast<double>(random() % 100000) / 100000; };
    std::vector<size_t> sizes;
    std::vector<bool> drops;
    for (int i = 0; i < 158; ++i) {
      sizes.push_back(static_cast<size_t>(256 * std::exp(drawn() * std::log(400000.0 / 256))));
      drops.push_back(drawn() < 0.3);
    }
    const auto step = [&] {
      std::vector<BufferHandle> arrays;
      size_t oldest = 0, alive = 0;
      const auto drop = [&] {
        alive -= (sizes[oldest] + 63) / 64 * 64;
        arrays[oldest++].Reset();
      };
      for (size_t i = 0; i < sizes.size(); ++i) {
        const size_t bytes = (sizes[i] + 63) / 64 * 64;
        while (alive + bytes > kMost) drop();
        arrays.push_back(New(sizes[i]));
        alive += bytes;
        if (drops[i]) drop();
      }
    };
    WorkspaceConfig config;
    config.plan_search_seconds = 0;
    config.policy_spill = SpillPolicy::kFail;
    config.initial_size = kMost + kMost / 10;
    Workspace workspace("step", config);
    bool came_through = false;
    int failed_after = 0;
    Repeat(60, [&](int) {
      try {
        WorkspaceScope scope(workspace);
        step();
        came_through = true;
      } catch (const OutOfMemoryError&) {
        failed_after += came_through;
      }
    });
    EXPECT_EQ(failed_after, 0) << seed;
    served += came_through;
  }
  EXPECT_GE(served, 50);
}

}  // namespace
}  // namespace tidepool
