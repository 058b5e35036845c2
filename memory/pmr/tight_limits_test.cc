// Limits of owners and of the process, of workspaces that serve arrays and blocks without records: what one of them keeps and nobody
// uses makes room for the other.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/kinds_for_test.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr int64_t kLimit = 16 << 20;
constexpr size_t kMost = 10 << 20;

void Array(size_t bytes) { const BufferHandle array(AllocateHere(bytes)); }
void Block(size_t bytes) { ReleaseBytes(AllocateBytesHere(bytes), bytes); }
void SmallBlocks() {
  std::vector<void*> blocks;
  for (int i = 0; i < 2000; ++i) blocks.push_back(AllocateBytesHere(1000));
  for (void* const block : blocks) ReleaseBytes(block, 1000);
}

// A limit for as long as one lives.
class Limit {
 public:
  Limit(bool of_process, const std::string& owner)
      : owner_(of_process ? nullptr : &OwnerOf(owner)) {
    MemoryBudget& budget = MemoryBudget::Global();
    if (of_process) {
      budget.SetProcessLimit(budget.process().taken_bytes + kLimit);
    } else {
      budget.SetOwnerLimit(*owner_, Host(), kLimit);
    }
  }
  ~Limit() {
    MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
    if (owner_ != nullptr)
      MemoryBudget::Global().SetOwnerLimit(*owner_, Host(), MemoryBudget::kUnlimited);
  }

 private:
  static MemoryOwner& OwnerOf(const std::string& name) {
    return MemoryOwner::Process().Child("workspace " + name);
  }
  MemoryOwner* const owner_;
};

// What each cycle of a round does, one after the other.
using Round = std::vector<std::function<void()>>;
constexpr const char *kArrayThenBlock = "an array, then a block",
                     *kArrayThenSmallBlocks = "an array, then small blocks and an array";
const std::vector<std::pair<const char*, Round>> kRounds = {
    {"small, then a large block", {[] { SmallBlocks(); }, [] { Block(15 << 20); }}},
    {"the same in one cycle", {[] { SmallBlocks(), Block(15 << 20); }}},
    {"a block, then an array", {[] { Block(kMost), Array(kMost); }}},
    {"the same in two cycles", {[] { Block(kMost); }, [] { Array(kMost); }}},
    {kArrayThenBlock, {[] { Array(kMost), Block(kMost); }}},
    {"in two cycles", {[] { Array(kMost); }, [] { Block(kMost); }}},
    {"small blocks, then an array", {[] { SmallBlocks(), Array(15 << 20); }}},
    {kArrayThenSmallBlocks, {[] { Array(15 << 20), SmallBlocks(), Array(15 << 20); }}},
};

TEST(TightLimits, WhatNobodyUsesMakesRoomForArraysAndBlocks) {
  for (const bool of_process : {false, true}) {
    for (const auto& [name, round] : kRounds) {
      SCOPED_TRACE(std::string(name) + (of_process ? ", process" : ", owner"));
      const Limit limit(of_process, "tight");
      Workspace workspace("tight");
      for (int i = 0; i < 20; ++i) {
        for (const auto& cycle : round) {
          WorkspaceScope scope(workspace);
          ASSERT_NO_THROW(cycle()) << i;
        }
      }
    }
  }
}

// But for a cycle whose range has what its plan places, which has no gaps to give back.
TEST(TightLimits, SoInPools) {
  for (const auto& [name, round] : kRounds) {
    SCOPED_TRACE(name);
    const bool keeps_range =
        name == kArrayThenBlock || name == kArrayThenSmallBlocks;  // in one cycle
    if (keeps_range) continue;
    const Limit limit(/*of_process=*/true, "");
    WorkspacePool pool("tight pool");
    int refused = 0;
    for (int i = 0; i < 20; ++i) {
      for (const auto& cycle : round) {
        try {
          PooledScope scope(pool);
          cycle();
        } catch (const OutOfMemoryError&) {
          ++refused;
        }
      }
    }
    EXPECT_EQ(refused, 0);
  }
}

// Whether the first byte of each array can be written, which the system is asked.
class Memory {
 public:
  Memory() { EXPECT_EQ(pipe(ends_), 0); }
  ~Memory() {
    close(ends_[0]);
    close(ends_[1]);
  }
  bool IsThere(const std::byte* data) {
    std::byte byte;
    return write(ends_[1], data, 1) == 1 && read(ends_[0], &byte, 1) == 1;
  }

 private:
  int ends_[2];
};

// Blocks before the first array of a cycle, which is to tell which plan of a file it follows: what lay free in the pages went
// back for them, so that no plan has its places there.
TEST(TightLimits, PlansOfFilesHaveNoPlacesWhereGapsWentForBlocks) {
  MemoryOwner& owner = MemoryOwner::Process().Child("tight gaps");
  const MemoryOwnerScope scope(owner);
  const auto limit = [&owner](int64_t bytes) {
    return MemoryBudget::Global().SetOwnerLimit(owner, Host(), bytes).taken_bytes;
  };
  constexpr int64_t kNone = int64_t{1} << 40, kPage = 4096;
  const std::string path = testing::TempDir() + "/tight_gaps.plans";
  Memory memory;
  int given = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    limit(kNone);
    Workspace workspace("tight gaps", Learning());
    std::vector<Kind> kinds(2 + random() % 4);  // that begin alike
    for (Kind& kind : kinds) {
      kind.resize(10 + random() % 30);
      for (KindRequest& request : kind) request.bytes = kPage;
      kind[random() % kind.size()].bytes = kPage * (1 + random() % 4);
      DrawLives(random, &kind);
    }
    for (int i = 0; i < 30; ++i) Cycle(workspace, kinds[random() % kinds.size()]);
    const Kind& kind = kinds[0];
    workspace.SavePlans(path);
    workspace.Destroy();
    workspace.LoadPlans(path);
    Cycle(workspace, kind);
    limit(limit(kNone) + kPage * static_cast<int64_t>(random() % 20));
    const size_t at = random() % 2, bytes = kPage * (1 + random() % 20);
    const WorkspaceScope cycle(workspace);
    std::vector<BufferHandle> arrays(kind.size());
    void* block = nullptr;
    for (uint32_t i = 0; i < kind.size(); ++i) {
      for (uint32_t before = 0; before < i; ++before) {
        if (kind[before].until <= i) arrays[before].Reset();
      }
      try {
        if (i == at) block = AllocateBytesHere(bytes);
      } catch (const OutOfMemoryError&) {
      }
      try {
        arrays[i] = BufferHandle(AllocateHere(kind[i].bytes));
      } catch (const OutOfMemoryError&) {
        continue;
      }
      ASSERT_TRUE(memory.IsThere(arrays[i]->data)) << "seed " << seed << ", request " << i;
    }
    given += block != nullptr;
    ReleaseBytes(block, bytes);
  }
  limit(MemoryBudget::kUnlimited);
  EXPECT_GT(given, 100);
}

// What is in use stays, and what does not fit is refused as before.
TEST(TightLimits, WhatIsInUseStays) {
  const Limit limit(false, "tight in use");
  Workspace workspace("tight in use");
  for (int i = 0; i < 10; ++i) {
    WorkspaceScope scope(workspace);
    char* const block = static_cast<char*>(AllocateBytesHere(kMost));
    block[0] = 'a', block[kMost - 1] = 'z';
    EXPECT_THROW(Array(kMost), OutOfMemoryError);
    const BufferHandle array(AllocateHere(2 << 20));
    EXPECT_EQ(block[0], 'a');
    EXPECT_EQ(block[kMost - 1], 'z');
    EXPECT_THROW(Block(kMost), OutOfMemoryError);
    ReleaseBytes(block, kMost);
    Array(kMost);
  }
}

// ---- equal cycles of blocks below limits that leave little --------------------------------------------------------

// Blocks of drawn sizes, of which at most `most` bytes are alive at once. Throws what a request throws, with all gone.
void DrawnBlocks(uint32_t seed, size_t most, int requests,
                 const std::function<size_t(std::mt19937&)>& draw) {
  std::mt19937 random(seed);
  std::vector<std::pair<void*, size_t>> alive;
  size_t live = 0;
  const auto release = [&](size_t i) {
    live -= alive[i].second;
    ReleaseBytes(alive[i].first, alive[i].second);
    alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(i));
  };
  const absl::Cleanup rest = [&] {
    while (!alive.empty()) release(alive.size() - 1);
  };
  for (int i = 0; i < requests; ++i) {
    const size_t bytes = draw(random);
    while (live + bytes > most || (!alive.empty() && random() % 3 == 0))
      release(random() % alive.size());
    alive.emplace_back(AllocateBytesHere(bytes), bytes);
    live += bytes;
  }
}

// What the stream settles in without a limit (4.9 MB, 4.1 alive) is enough, and what is a little more asks nobody any more: a
// workspace that lacks memory in a cycle gives none of its own back for that at the end.
TEST(TightLimits, EqualCyclesSettleBelowALimit) {
  const absl::Cleanup unlimited = [] {
    MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  };
  MemoryBudget& budget = MemoryBudget::Global();
  const int64_t others = budget.process().taken_bytes;
  for (const bool is_pooled : {false, true}) {
    for (const int64_t limit : {4'900'000, 5'000'000, 5'200'000, 5'400'000, 5'600'000}) {
      budget.SetProcessLimit(others + limit + (is_pooled ? 100'000 : 0));
      Workspace workspace("settles");
      WorkspacePool pool("settles too");
      int refused = 0;
      int64_t asked = 0;
      for (int cycle = 0; cycle < 300; ++cycle) {
        if (cycle == 200) asked = MemoryTracker::Global().system_allocations();
        const auto blocks = [&] {
          try {
            DrawnBlocks(4, size_t{4} << 20, 45,
                        [](std::mt19937& random) { return 10000 + random() % 1000000; });
          } catch (const OutOfMemoryError&) {
            refused += cycle >= 50;
          }
        };
        if (is_pooled) {
          const PooledScope scope(pool);
          blocks();
        } else {
          const WorkspaceScope scope(workspace);
          blocks();
        }
      }
      EXPECT_EQ(refused, 0) << "limit " << limit << ", pooled " << is_pooled;
      if (limit >= 5'200'000) {
        EXPECT_EQ(MemoryTracker::Global().system_allocations() - asked, 0)
            << "limit " << limit << ", pooled " << is_pooled;
      }
    }
  }
}

// Nor is any stream refused for ever at a little more than what it settles in.
TEST(TightLimits, WhatSettlesFitsBelowALimit) {
  MemoryBudget& budget = MemoryBudget::Global();
  const absl::Cleanup unlimited = [&] { budget.SetProcessLimit(MemoryBudget::kUnlimited); };
  const int64_t others = budget.process().taken_bytes;
  int refused = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    int64_t kept = 0;
    for (const bool limited : {false, true}) {
      budget.SetProcessLimit(limited ? others + kept + kept / 100 + 32768
                                     : MemoryBudget::kUnlimited);
      Workspace workspace("fits");
      for (int cycle = 0; cycle < 60; ++cycle) {
        const WorkspaceScope scope(workspace);
        try {
          DrawnBlocks(seed, size_t{4} << 20, 45,
                      [](std::mt19937& random) { return 10000 + random() % 1000000; });
        } catch (const OutOfMemoryError&) {
          refused += cycle >= 30;
        }
      }
      kept = static_cast<int64_t>(workspace.stats().block_bytes);
    }
  }
  EXPECT_EQ(refused, 0);
}

// Chunks that sizes of other cycles keep serve this cycle's: by themselves they would lie between what is alive, and no span
// of theirs could go for a large block.
TEST(TightLimits, ChunksOfOtherCyclesSizesAreInNobodysWay) {
  const absl::Cleanup unlimited = [] {
    MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  };
  MemoryBudget& budget = MemoryBudget::Global();
  constexpr size_t kAlive = 2 << 20;
  budget.SetProcessLimit(budget.process().taken_bytes + 2 * kAlive);
  Workspace workspace("kinds in turns");
  int refused = 0;
  for (int cycle = 0; cycle < 400; ++cycle) {
    const WorkspaceScope scope(workspace);
    if (cycle % 2 == 0) {
      for (size_t i = 1; i <= 16; ++i) Block(8 * i);
      continue;
    }
    try {
      DrawnBlocks(1, kAlive, 400, [](std::mt19937& random) {
        return random() % 8 == 0 ? 1000 + random() % 3000 : 4100 + random() % 36000;
      });
    } catch (const OutOfMemoryError&) {
      refused += cycle >= 50;
    }
  }
  EXPECT_EQ(refused, 0);
}

}  // namespace
}  // namespace tidepool
