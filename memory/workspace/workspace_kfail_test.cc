// What SpillPolicy::kFail refuses: what does not fit beside what is alive, and nothing else.
#include <cstddef>
#include <map>
#include <memory>
#include <numeric>
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
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

constexpr size_t kUnit = 64;
constexpr LearningPolicy kOfLifetimes[] = {LearningPolicy::kTraining, LearningPolicy::kOptimized};

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

WorkspaceConfig Failing(LearningPolicy learning, size_t bytes) {
  WorkspaceConfig config;
  config.policy_learning = learning;
  config.policy_spill = SpillPolicy::kFail;
  config.initial_size = bytes;
  config.alignment = kUnit;
  config.plan_search_seconds = 0;
  return config;
}

// A workspace, or a ring of which each batch gets the same slot.
class Place {
 public:
  explicit Place(WorkspaceConfig config)
      : workspace_(std::make_unique<Workspace>("w", config, TestDevice())) {}
  static Place Ring(WorkspaceConfig config) {
    WorkspaceConfig ring = WorkspaceConfig::Ring(2);
    ring.policy_learning = config.policy_learning;
    ring.policy_spill = config.policy_spill;
    ring.initial_size = config.initial_size;
    ring.alignment = config.alignment;
    Place place;
    place.ring_ = std::make_unique<RingWorkspace>("r", ring, TestDevice());
    return place;
  }

  template <typename Function>
  void Cycle(const Function& function) {
    if (workspace_ != nullptr) {
      const WorkspaceScope scope(*workspace_);
      return function();
    }
    RingSlotScope slot(*ring_);
    function();
    slot.Commit().Release();
  }
  uint64_t plans() const {
    return workspace_ != nullptr ? workspace_->stats().plans : ring_->stats().plans;
  }
  uint64_t misses() const {
    return workspace_ != nullptr ? workspace_->stats().misses : ring_->stats().misses;
  }
  uint64_t spills() const {
    return workspace_ != nullptr ? workspace_->stats().spills : ring_->stats().spills;
  }

 private:
  Place() = default;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<RingWorkspace> ring_;
};

// By where they were placed, the arrays that are alive in pages of so many bytes.
class Alive {
 public:
  explicit Alive(size_t capacity) : capacity_(capacity) {}

  // The first array of all lies at the beginning.
  void Add(BufferHandle handle) {
    const std::byte* const data = handle->data;
    if (base_ == nullptr) base_ = data;
    ASSERT_GE(data, base_);
    const auto offset = static_cast<size_t>(data - base_);
    const size_t bytes = Rounded(handle->bytes);
    ASSERT_LE(offset + bytes, capacity_);
    const auto after = by_offset_.lower_bound(offset);
    ASSERT_TRUE(after == by_offset_.end() || offset + bytes <= after->first);
    ASSERT_TRUE(after == by_offset_.begin() || std::prev(after)->second.end <= offset);
    by_offset_[offset] = {offset + bytes, std::move(handle)};
    in_order_.push_back(offset);
  }
  // Of those in the order they were made.
  void Drop(size_t index) {
    by_offset_.erase(in_order_[index]);
    in_order_.erase(in_order_.begin() + static_cast<ptrdiff_t>(index));
  }
  void Clear() {
    by_offset_.clear();
    in_order_.clear();
  }
  size_t size() const { return in_order_.size(); }
  size_t bytes() const {
    size_t bytes = 0;
    for (const auto& [offset, array] : by_offset_) bytes += array.end - offset;
    return bytes;
  }
  size_t LargestGap() const {
    size_t at = 0, largest = 0;
    for (const auto& [offset, array] : by_offset_) {
      largest = std::max(largest, offset - at);
      at = array.end;
    }
    return std::max(largest, capacity_ - at);
  }
  static size_t Rounded(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

 private:
  struct Array {
    size_t end;
    BufferHandle handle;
  };
  const size_t capacity_;
  const std::byte* base_ = nullptr;
  std::map<size_t, Array> by_offset_;
  std::vector<size_t> in_order_;
};

// A cycle of `requests` random requests and releases. Refusals are looked at closely, and counted.
void RandomCycle(std::mt19937_64& random, int requests, size_t most, Alive* alive, int* refused) {
  for (int i = 0; i < requests && !testing::Test::HasFatalFailure(); ++i) {
    if (alive->size() > 0 && random() % 5 < 2) {
      alive->Drop(random() % alive->size());
      continue;
    }
    const size_t bytes = 1 + random() % most;
    const size_t gap = alive->LargestGap();
    BufferHandle handle;
    try {
      handle = New(bytes);
    } catch (const OutOfMemoryError& error) {
      ++*refused;
      ASSERT_GT(Alive::Rounded(bytes), gap)
          << alive->bytes() << " bytes are alive: " << error.message();
      continue;
    }
    ASSERT_LE(Alive::Rounded(bytes), gap);
    alive->Add(std::move(handle));
  }
  alive->Clear();
}

// body(round, place, alive) for each round and each kind of place, of `pages` bytes whose beginning `alive` knows.
template <typename Body>
void InPlaces(LearningPolicy learning, size_t pages, const std::vector<uint64_t>& rounds,
              const Body& body) {
  for (const bool ring : {false, true}) {
    for (const uint64_t round : rounds) {
      SCOPED_TRACE(
          absl::StrCat("learning ", static_cast<int>(learning), " ring ", ring, " round ", round));
      const WorkspaceConfig config = Failing(learning, pages);
      Place place = ring ? Place::Ring(config) : Place(config);
      Alive alive(pages);
      place.Cycle([&] {
        alive.Add(New(1));
        alive.Clear();
      });
      body(round, place, alive);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Cycles of ever different requests, of kinds in turns, and of kinds that end differently, in pages from far too small
// to large enough.
TEST(WorkspaceKFail, OnlyWhatIsAliveIsInTheWay) {
  constexpr size_t kPages = 64 * 1024;
  std::vector<uint64_t> rounds(150);
  std::iota(rounds.begin(), rounds.end(), uint64_t{0});
  int refused = 0;
  uint64_t misses = 0, plans = 0;
  for (const LearningPolicy learning : kOfLifetimes) {
    InPlaces(learning, kPages, rounds, [&](uint64_t round, Place& place, Alive& alive) {
      std::mt19937_64 random(round);
      const uint64_t kinds = 1 + random() % 4;
      for (int cycle = 0; cycle < 25 && !HasFatalFailure(); ++cycle) {
        const uint64_t kind = random() % (kinds + 1);
        std::mt19937_64 of_kind(1000 * round + (kind == kinds ? 100 + cycle : kind));
        const size_t most = of_kind() % 2 == 0 ? 24000 : 4000;
        place.Cycle([&] {
          RandomCycle(of_kind, 20, most, &alive, &refused);
          if (random() % 2 == 0) RandomCycle(random, 20, most, &alive, &refused);
          alive.Add(New(kPages));  // nothing else is alive
          alive.Clear();
        });
      }
      misses += place.misses();
      plans += place.plans();
      EXPECT_EQ(place.spills(), 0u);
    });
    if (HasFatalFailure()) return;
  }
  // There was something to see.
  EXPECT_GT(refused, 1000);
  EXPECT_GT(misses, 1000u);
  EXPECT_GT(plans, 1000u);
}

// What is offered is never more than what was asked for: requests have multiples of the alignment.
TEST(WorkspaceKFail, AnInitialSizeIsRoundedDown) {
  constexpr LearningPolicy kAll[] = {LearningPolicy::kTraining, LearningPolicy::kOptimized,
                                     LearningPolicy::kFirstLoop, LearningPolicy::kOverTime,
                                     LearningPolicy::kNone};
  const std::pair<size_t, size_t> sizes[] = {{1000, 64}, {1023, 64},   {1024, 64},
                                             {1025, 64}, {5000, 4096}, {3 << 20, 2 << 20}};
  for (const LearningPolicy learning : kAll) {
    for (const auto& [bytes, alignment] : sizes) {
      SCOPED_TRACE(
          absl::StrCat("learning ", static_cast<int>(learning), ": ", bytes, " of ", alignment));
      WorkspaceConfig config = Failing(learning, bytes);
      config.alignment = alignment;
      if (learning == LearningPolicy::kOverTime) config.cycles_before_initialization = 2;
      Workspace workspace("w", config, TestDevice());
      const size_t offered = bytes / alignment * alignment;
      EXPECT_EQ(workspace.size(), offered);
      EXPECT_EQ(workspace.stats().size_bytes, offered);
      for (int cycle = 0; cycle < 4; ++cycle) {
        const WorkspaceScope scope(workspace);
        std::vector<BufferHandle> alive;
        for (size_t at = 0; at < offered; at += alignment) alive.push_back(New(alignment - cycle));
        try {
          New(1);
          FAIL();
        } catch (const OutOfMemoryError& error) {
          EXPECT_THAT(error.message(), HasSubstr(absl::StrCat("0 of ", offered, " bytes free")));
        }
        EXPECT_EQ(workspace.size(), offered);
      }
      EXPECT_EQ(workspace.stats().misses, 0u);
    }
  }
  // A slot of a ring.
  WorkspaceConfig config = Failing(LearningPolicy::kTraining, 1000);
  Place place = Place::Ring(config);
  for (int cycle = 0; cycle < 4; ++cycle) {
    place.Cycle([] {
      std::vector<BufferHandle> alive;
      for (int i = 0; i < 15; ++i) alive.push_back(New(64));
      EXPECT_THROW(New(1), OutOfMemoryError);
    });
  }
}

TEST(WorkspaceKFail, AnInitialSizeThatHoldsNothingIsRefused) {
  WorkspaceConfig config = Failing(LearningPolicy::kTraining, 100);
  config.alignment = 128;
  EXPECT_THAT(config.Reasons(),
              testing::ElementsAre(HasSubstr("initial_size 100 holds no request")));
  config.initial_size = 128;
  EXPECT_THAT(config.Reasons(), testing::IsEmpty());
}

// The plan keeps all of the pages for two arrays. A cycle that is another one from its first request on is served, and
// learned.
TEST(WorkspaceKFail, TheFirstRequestOfAnotherCycleIsServed) {
  for (const LearningPolicy learning : kOfLifetimes) {
    for (const bool ring : {false, true}) {
      SCOPED_TRACE(absl::StrCat("learning ", static_cast<int>(learning), " ring ", ring));
      const WorkspaceConfig config = Failing(learning, 8192);
      Place place = ring ? Place::Ring(config) : Place(config);
      for (int cycle = 0; cycle < 2; ++cycle) {
        place.Cycle([] { const BufferHandle a = New(2048), b = New(6144); });
      }
      for (int cycle = 0; cycle < 8; ++cycle) {
        place.Cycle([] {
          BufferHandle a = New(1024);
          const BufferHandle b = New(6144);
          a.Reset();
          const BufferHandle c = New(1024);
        });
      }
      EXPECT_EQ(place.plans(), 2u);
      EXPECT_LE(place.misses(), 2u);
    }
  }
}

// A request that cannot fit leaves the cycle on its plan, also as the first of it, and however often.
TEST(WorkspaceKFail, WhatIsRefusedChangesNothing) {
  const auto expect_refused = [](size_t bytes, const std::string& why) {
    try {
      New(bytes);
      FAIL();
    } catch (const OutOfMemoryError& error) {
      EXPECT_THAT(error.message(),
                  HasSubstr(absl::StrCat("workspace [w] is full: request of ", why)));
    }
  };
  for (const LearningPolicy learning : kOfLifetimes) {
    SCOPED_TRACE(absl::StrCat("learning ", static_cast<int>(learning)));
    Workspace workspace("w", Failing(learning, 8192), TestDevice());
    for (int cycle = 0; cycle < 6; ++cycle) {
      const WorkspaceScope scope(workspace);
      expect_refused(
          8193,
          "8256 bytes, 8192 of 8192 bytes free, 8192 of them in one piece, policy_spill kFail");
      const BufferHandle a = New(4096);
      BufferHandle b = New(1024);
      const BufferHandle c = New(2048);
      for (int i = 0; i < 100; ++i) {
        expect_refused(1088, "1088 bytes, 1024 of 8192 bytes free, 1024 of them in one piece");
      }
      b.Reset();
      expect_refused(2100, "2112 bytes, 2048 of 8192 bytes free, ");
      const BufferHandle d = New(1024), e = New(1024);
    }
    EXPECT_EQ(workspace.stats().misses, 0u);
    EXPECT_EQ(workspace.stats().plans, 1u);
    EXPECT_EQ(workspace.stats().hits, 6u * 5);
  }
}

// The places that a cycle finds for itself may need less than any plan. It leaves its plan each time, and is not planned
// each time.
TEST(WorkspaceKFail, WhatNoPlanHasRoomForIsServedAgain) {
  constexpr size_t kPages = 8192;
  constexpr uint64_t kCycles = 40;
  std::vector<uint64_t> rounds = {82, 291, 387, 32, 192, 356};
  for (uint64_t round = 0; round < 30; ++round) rounds.push_back(round);
  for (const LearningPolicy learning : kOfLifetimes) {
    uint64_t left_each_time = 0;
    InPlaces(learning, kPages, rounds, [&](uint64_t round, Place& place, Alive& alive) {
      for (uint64_t cycle = 0; cycle < kCycles && !HasFatalFailure(); ++cycle) {
        std::mt19937_64 random(round);
        int refused = 0;
        place.Cycle([&] { RandomCycle(random, 40, 3000, &alive, &refused); });
      }
      EXPECT_LE(place.plans(), kCycles / 2 + 2);
      left_each_time += place.misses() >= kCycles - 2;
    });
    if (HasFatalFailure()) return;
    EXPECT_GT(left_each_time, 0u);
  }
}

}  // namespace
}  // namespace tidepool
