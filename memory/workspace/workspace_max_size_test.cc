// What max_size holds under SpillPolicy::kReallocate: all that is alive, in the pages and outside.
#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/test_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

constexpr size_t kUnit = 64;
constexpr LearningPolicy kOfLifetimes[] = {LearningPolicy::kTraining, LearningPolicy::kOptimized};

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }
size_t Rounded(size_t bytes) { return (bytes + (bytes == 0) + kUnit - 1) / kUnit * kUnit; }

// Empty when it was served.
std::string Refusal(size_t bytes, std::vector<BufferHandle>* alive) {
  try {
    alive->push_back(New(bytes));
    return "";
  } catch (const OutOfMemoryError& error) {
    return error.message();
  }
}

WorkspaceConfig Limited(LearningPolicy learning, size_t max_size) {
  WorkspaceConfig config;
  config.policy_learning = learning;
  config.max_size = max_size;
  config.alignment = kUnit;
  config.plan_search_seconds = 0;
  return config;
}

// Who has cycles with such a limit: a workspace, a pool of them, or the slots of a ring.
class Place {
 public:
  enum Kind { kWorkspace, kPool, kRing };

  Place(Kind kind, WorkspaceConfig config) {
    if (kind == kWorkspace) workspace_ = std::make_unique<Workspace>("w", config, TestDevice());
    if (kind == kPool) pool_ = std::make_unique<WorkspacePool>("p", config, TestDevice());
    if (kind != kRing) return;
    const WorkspaceConfig ring = WorkspaceConfig::Ring(2);
    config.policy_reset = ring.policy_reset;
    config.ring_slots = ring.ring_slots;
    ring_ = std::make_unique<RingWorkspace>("r", config, TestDevice());
  }

  template <typename Function>
  void Cycle(const Function& function) {
    if (workspace_ != nullptr) {
      const WorkspaceScope scope(*workspace_);
      function();
    } else if (pool_ != nullptr) {
      const PooledScope scope(*pool_);
      function();
    } else {
      RingSlotScope slot(*ring_);
      function();
      slot.Commit().Release();
    }
  }
  uint64_t spills() const {
    if (workspace_ != nullptr) return workspace_->stats().spills;
    return pool_ != nullptr ? pool_->stats().spills : ring_->stats().spills;
  }
  uint64_t hits() const {
    if (workspace_ != nullptr) return workspace_->stats().hits;
    return pool_ != nullptr ? pool_->stats().hits : ring_->stats().hits;
  }

 private:
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<WorkspacePool> pool_;
  std::unique_ptr<RingWorkspace> ring_;
};

// body(place, learning) for each kind of place that learns lifetimes.
template <typename Body>
void InPlaces(size_t max_size, const Body& body) {
  for (const LearningPolicy learning : kOfLifetimes) {
    for (const Place::Kind kind : {Place::kWorkspace, Place::kPool, Place::kRing}) {
      if (kind == Place::kPool && learning != LearningPolicy::kTraining) continue;
      SCOPED_TRACE(
          absl::StrCat("learning ", static_cast<int>(learning), " kind ", static_cast<int>(kind)));
      Place place(kind, Limited(learning, max_size));
      body(place);
    }
  }
}

// The pages have room for the pieces, but something lies outside by then: half of what they have, or nearly as much.
TEST(WorkspaceMaxSize, WhatLiesOutsideCountsForWhatThePagesHaveRoomFor) {
  constexpr size_t kPiece = 4096;
  constexpr size_t kPieces = 16;
  InPlaces(kPieces * kPiece, [&](Place& place) {
    const auto take = [](size_t count, std::vector<BufferHandle>* alive) {
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(Refusal(kPiece, alive), "");
    };
    for (int cycle = 0; cycle < 4; ++cycle) {
      place.Cycle([&] {
        std::vector<BufferHandle> alive;
        take(kPieces, &alive);
      });
    }
    for (const bool scattered : {true, false}) {
      place.Cycle([&] {
        std::vector<BufferHandle> alive, kept;
        take(kPieces, &alive);
        EXPECT_THAT(Refusal(1, &alive), HasSubstr("max_size is 65536, policy_spill kReallocate"));
        for (size_t i = 0; i < kPieces; ++i) {
          if (scattered ? i % 2 == 0 : i != kPieces / 2) continue;
          kept.push_back(std::move(alive[i]));
        }
        alive.clear();
        const size_t outside = kPieces - kept.size() - (scattered ? 4 : 0);
        EXPECT_EQ(Refusal(outside * kPiece, &kept), "");
        if (scattered) take(4, &kept);
        EXPECT_THAT(Refusal(1, &kept), HasSubstr("the cycle needs 65600 bytes at once"));
        kept.pop_back();  // in the pages, or all that is outside
        take(scattered ? 1 : kPieces - 1, &kept);
        EXPECT_NE(Refusal(1, &kept), "");
      });
    }
    EXPECT_GT(place.spills(), 0u);
  });
}

// The pages are what the limit is; the next cycle is served from them as if nothing had been refused.
TEST(WorkspaceMaxSize, WhatIsRefusedChangesNothing) {
  InPlaces(8192, [](Place& place) {
    for (int cycle = 0; cycle < 20; ++cycle) {
      for (const size_t pieces : {1, 8, 128}) {
        place.Cycle([&] {
          std::vector<BufferHandle> alive;
          EXPECT_NE(Refusal(8193, &alive), "");
          for (size_t i = 0; i < pieces; ++i)
            EXPECT_EQ(Refusal(8192 / pieces, &alive), "") << cycle;
          EXPECT_NE(Refusal(1, &alive), "") << cycle << " of " << pieces;
          EXPECT_NE(Refusal(0, &alive), "") << cycle << " of " << pieces;
        });
      }
    }
  });
}

// A limit that is no multiple of the alignment is not rounded up, given or learned.
TEST(WorkspaceMaxSize, TheLimitIsNotRoundedUp) {
  for (const bool given : {false, true}) {
    for (const LearningPolicy learning : kOfLifetimes) {
      WorkspaceConfig config = Limited(learning, 1000);
      (given ? config.initial_size : config.min_size) = 1000;
      for (const Place::Kind kind : {Place::kWorkspace, Place::kRing}) {
        Place place(kind, config);
        for (int cycle = 0; cycle < 6; ++cycle) {
          place.Cycle([&] {
            std::vector<BufferHandle> alive;
            for (int i = 0; i < 15; ++i) EXPECT_EQ(Refusal(60 - cycle % 2, &alive), "") << cycle;
            EXPECT_NE(Refusal(1, &alive), "") << cycle;
          });
        }
        EXPECT_EQ(place.spills(), given ? 0u : 15u);
      }
    }
  }
}

// A slot that is there because the ring is full learns nothing, and serves the batches that the ring's own serve.
TEST(WorkspaceMaxSize, ATemporarySlotServesWhatTheOthersServe) {
  for (const LearningPolicy learning : kOfLifetimes) {
    WorkspaceConfig config = WorkspaceConfig::Ring(1);
    config.policy_learning = learning;
    config.policy_ring_full = RingFullPolicy::kSpill;
    config.max_size = 1000;
    RingWorkspace ring("r", config, TestDevice());
    for (const bool temporary : {false, true}) {
      SlotLease held;
      if (temporary) {
        RingSlotScope scope(ring);
        held = scope.Commit();
      }
      RingSlotScope scope(ring);
      for (int i = 0; i < 10; ++i) EXPECT_EQ(New(600)->bytes, 600u) << temporary;
      std::vector<BufferHandle> alive = {New(600)};
      EXPECT_NE(Refusal(600, &alive), "") << temporary;
      scope.Discard();
    }
    EXPECT_EQ(ring.stats().temporary, 1u);
  }
}

// A cycle of random requests and releases. The model is the sum of what is alive, or of what was requested where
// that is learned: what needs more is refused, and nothing else.
struct Seen {
  int refused = 0;
  int served = 0;
};
void RandomCycle(std::mt19937_64& random, int steps, size_t most, size_t max_size, bool of_live,
                 Seen* seen) {
  std::vector<BufferHandle> alive;
  size_t bytes_alive = 0, requested = 0;
  for (int step = 0; step < steps; ++step) {
    if (!alive.empty() && random() % 5 < 2) {
      const size_t index = random() % alive.size();
      bytes_alive -= Rounded(alive[index]->bytes);
      std::swap(alive[index], alive.back());
      alive.pop_back();
      continue;
    }
    const size_t bytes = random() % (random() % 3 == 0 ? most : most / 16);
    const std::string refusal = Refusal(bytes, &alive);
    const size_t needed = Rounded(bytes);
    if (refusal.empty()) {
      ++seen->served;
      bytes_alive += needed;
      requested += needed;
      ASSERT_LE(bytes_alive, max_size);
    } else {
      ++seen->refused;
      ASSERT_GT((of_live ? bytes_alive : requested) + needed, max_size) << refusal;
    }
  }
}

TEST(WorkspaceMaxSize, HoldsInRandomHistories) {
  constexpr size_t kMost = 64 * 1024;
  Seen seen;
  uint64_t spills = 0, hits = 0;
  for (uint64_t round = 0; round < 40; ++round) {
    const size_t max_size = kMost + 1000 * (round % 3);
    for (const LearningPolicy learning : {LearningPolicy::kTraining, LearningPolicy::kOptimized,
                                          LearningPolicy::kFirstLoop, LearningPolicy::kOverTime}) {
      for (const Place::Kind kind : {Place::kWorkspace, Place::kPool, Place::kRing}) {
        if (kind == Place::kPool && learning != LearningPolicy::kTraining) continue;
        SCOPED_TRACE(absl::StrCat("learning ", static_cast<int>(learning), " kind ",
                                  static_cast<int>(kind), " round ", round));
        WorkspaceConfig config = Limited(learning, max_size);
        if (learning == LearningPolicy::kOverTime) config.cycles_before_initialization = 3;
        Place place(kind, config);
        std::mt19937_64 random(round);
        const uint64_t kinds = 1 + random() % 4;
        for (int cycle = 0; cycle < 25; ++cycle) {
          const uint64_t which = random() % (kinds + 1);
          std::mt19937_64 of_kind(1000 * round + (which == kinds ? 100 + cycle : which));
          const size_t most = of_kind() % 2 == 0 ? kMost / 2 : kMost / 8;
          const bool of_live =
              learning == LearningPolicy::kTraining || learning == LearningPolicy::kOptimized;
          place.Cycle([&] { RandomCycle(of_kind, 60, most, max_size, of_live, &seen); });
          if (HasFatalFailure()) return;
        }
        spills += place.spills();
        hits += place.hits();
      }
    }
  }
  // There was something to see.
  EXPECT_GT(seen.refused, 1000);
  EXPECT_GT(spills, 10000u);
  EXPECT_GT(hits, 10000u);
}

}  // namespace
}  // namespace tidepool
