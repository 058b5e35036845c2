// What refusals say of arrays that could not go, and what a child of fork() has of them.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/held_bytes.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/spill/spillable_array.h"

namespace tidepool {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A report after the workspace has gone in which it was pinned, with its node of the ledger.
TEST(SpillablePins, WhoPinnedMayBeGone) {
  SpillFile file({.folder = testing::TempDir(), .block_bytes = 16 * SpillFile::kPageBytes});
  Spillables spillables(file);
  const SpillableArray array(spillables, Full({1000}, 1, DType::kFloat32, Place::Heap()), "table");
  MemoryOwner& parent = MemoryOwner::Process().Child("pins");
  std::optional<OwnerLease> lease(std::in_place, parent, "brief");
  std::optional<SpillableArray::Pinned> pinned;
  {
    const MemoryOwnerScope owner(**lease);
    pinned.emplace(array.Read());
  }
  EXPECT_THAT(Reclaimer::Global().DescribePinned(), HasSubstr("pinned by pins/brief"));
  lease.reset();
  for (int i = 0; i <= kGoneOwnersNamed; ++i) const OwnerLease next(parent, std::to_string(i));
  EXPECT_THAT(Reclaimer::Global().DescribePinned(),
              HasSubstr("pinned by a workspace that is gone"));
}

// A program that writes `*pinned = f(*pinned)` has another buffer there, with a version of its own.
TEST(SpillablePins, WhatIsAssignedIsWhatComesBack) {
  SpillFile file({.folder = testing::TempDir(), .block_bytes = 16 * SpillFile::kPageBytes});
  Spillables spillables(file);
  SpillableArray array(spillables, Full({1000}, 1, DType::kFloat32, Place::Heap()), "table");
  for (int round = 2; round < 6; ++round) {
    EXPECT_TRUE(array.Spill());
    *array.Write() = Full({1000}, round, DType::kFloat32, Place::Heap());
    EXPECT_TRUE(array.Spill());
    EXPECT_EQ((*array.Read()).ToVector<float>(), std::vector<float>(1000, round));
  }
  // What is of another shape, or nothing, stays, and reports say why.
  for (const NDArray& other : {Full({10}, 1, DType::kFloat32, Place::Heap()), NDArray()}) {
    *array.Write() = other;
    EXPECT_FALSE(array.Spill());
    EXPECT_THAT(Reclaimer::Global().DescribePinned(),
                HasSubstr("(another array was assigned to it)"));
  }
}

// Who reads of a budget that is too small would raise it, where the disk is full.
TEST(SpillablePins, ARefusalSaysThatNothingCouldBeWritten) {
  constexpr int64_t kBytes = 64 * SpillFile::kPageBytes;
  SpillFile file({.folder = testing::TempDir(), .capacity_bytes = kBytes / 2});
  Spillables spillables(file);
  MemoryOwner& owner = MemoryOwner::Process().Child("full disk");
  const MemoryOwnerScope scope(owner);
  const auto make = [&] { return Full({kBytes / 4}, 1, DType::kFloat32, Place::Heap()); };
  std::optional<SpillableArray> array(std::in_place, spillables, make(), "table");
  MemoryBudget& budget = MemoryBudget::Global();
  budget.SetOwnerLimit(owner, Host(), budget.Of(owner, Host()).taken_bytes + kBytes / 2);
  const auto refusal = [&] {
    try {
      make();
    } catch (const OutOfMemoryError& error) {
      return std::string(error.message());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(),
              testing::ContainsRegex("arrays were not spilled: spill file in .* is full: "
                                     "262144 bytes more, 0 of 131072 bytes"));
  {  // nothing is tried
    const SpillableArray::Pinned pinned = array->Read();
    EXPECT_THAT(refusal(), AllOf(HasSubstr("could be spilled but for their use"),
                                 testing::Not(HasSubstr("were not spilled"))));
  }
  array.reset();
  EXPECT_EQ(refusal(), "");
  budget.SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
}

// An array with the handles, views, holds and pins of it that there are; what is left of one that was freed is with others alone.
struct Used {
  SpillableArray array;
  int64_t bytes = 0;
  std::vector<SpillableArray::Pinned> pins;
  std::vector<NDArray> handles;
  std::vector<std::unique_ptr<HeldBytes>> holds;
};

// At random, compared with a model after each step: whether or not anything was to go since.
TEST(SpillableStats, SayWhatIsWithOthersNow) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](size_t below) { return static_cast<size_t>(random() % below); };
    const auto drop = [&](auto& from) {
      if (!from.empty()) from.erase(from.begin() + static_cast<ptrdiff_t>(draw(from.size())));
    };
    SpillFile file({.folder = testing::TempDir(), .block_bytes = 16 * SpillFile::kPageBytes});
    Spillables spillables(file);
    std::vector<Used> all(5);
    const auto renew = [&](Used& used) {
      const auto elements = static_cast<int64_t>(1 + draw(2000));
      used = Used();
      used.array = SpillableArray(spillables, Full({elements}, 1, DType::kFloat32, Place::Heap()));
      used.bytes = elements * 4;
    };
    for (Used& used : all) renew(used);
    for (int step = 0; step < 300; ++step) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", step " << step);
      Used& used = all[draw(all.size())];
      switch (draw(9)) {
        case 0:
          used.pins.push_back(used.array.Read());
          break;
        case 1:
          used.handles.push_back(*used.array.Read());
          break;
        case 2:
          used.handles.push_back(used.array.Read()->Slice(0, 0, 1));
          break;
        case 3:
          used.holds.push_back(std::make_unique<HeldBytes>(used.array.Read()->buffer()));
          break;
        case 4:
          drop(used.pins);
          break;
        case 5:
          drop(used.handles);
          break;
        case 6:
          drop(used.holds);
          break;
        case 7: {
          const bool goes = used.array.is_here() && used.pins.empty() && used.handles.empty() &&
                            used.holds.empty();
          EXPECT_EQ(used.array.Spill(), goes);
          break;
        }
        default:
          renew(used);
      }
      int64_t here = 0, away = 0, pinned = 0, elsewhere = 0;
      for (const Used& each : all) {
        (each.array.is_here() ? here : away) += each.bytes;
        if (!each.pins.empty())
          pinned += each.bytes;
        else if (!each.handles.empty() || !each.holds.empty())
          elsewhere += each.bytes;
      }
      const SpillablesStats stats = spillables.stats();
      ASSERT_EQ(stats.here_bytes, here);
      ASSERT_EQ(stats.away_bytes, away);
      ASSERT_EQ(stats.pinned_bytes, pinned);
      ASSERT_EQ(stats.elsewhere_bytes, elsewhere);
    }
  }
}

// Who looks at them all the time is in nobody's way: everything that may go goes at once.
TEST(SpillableStats, ALookKeepsNothingFromGoing) {
  SpillFile file({.folder = testing::TempDir(), .block_bytes = 16 * SpillFile::kPageBytes});
  Spillables spillables(file);
  SpillableArray array(spillables, Full({1000}, 1, DType::kFloat32, Place::Heap()));
  std::atomic<bool> stop{false};
  std::thread looks([&] {
    while (!stop) {
      EXPECT_EQ(spillables.stats().elsewhere_bytes, 0);
      Reclaimer::Global().DescribePinned();
    }
  });
  int gone = 0;
  for (int i = 0; i < 2000; ++i) {
    array.Read();
    if (array.Spill()) ++gone;
  }
  EXPECT_EQ(gone, 2000);
  stop = true;
  looks.join();
}

// It is charged again when the array comes.
TEST(SpillableOwner, StaysAsLongAsTheArray) {
  SpillFile file({.folder = testing::TempDir(), .block_bytes = 16 * SpillFile::kPageBytes});
  Spillables spillables(file);
  MemoryOwner& parent = MemoryOwner::Process().Child("spilled for");
  std::optional<OwnerLease> lease(std::in_place, parent, "brief");
  std::optional<SpillableArray> array;
  {
    const MemoryOwnerScope owner(**lease);
    array.emplace(spillables, Full({1000}, 1, DType::kFloat32, Place::Heap()), "table");
  }
  ASSERT_TRUE(array->Spill());
  lease.reset();
  const auto push_out = [&] {
    for (int i = 0; i <= kGoneOwnersNamed; ++i) const OwnerLease next(parent, std::to_string(i));
  };
  const auto is_there = [&] {
    for (const MemoryOwner* owner : MemoryOwner::All()) {
      if (owner->Path() == "spilled for/brief") return true;
    }
    return false;
  };
  push_out();
  ASSERT_TRUE(is_there());
  EXPECT_EQ(array->Read()->ToVector<float>()[999], 1);
  array.reset();
  push_out();
  EXPECT_FALSE(is_there());
}

TEST(SpillableRecomputed, OddFunctionsAreErrors) {
  SpillFile file({.folder = testing::TempDir(), .block_bytes = 16 * SpillFile::kPageBytes});
  Spillables spillables(file);
  const auto make = [] { return Full({10}, 1, DType::kFloat32, Place::Heap()); };
  const auto message = [](SpillableArray& array) {
    try {
      array.Read();
    } catch (const Error& error) {
      return std::string(error.message());
    }
    return std::string();
  };
  int calls = 0;
  SpillableArray nothing = SpillableArray::Recomputed(
      spillables, [&] { return calls++ == 1 ? NDArray() : make(); }, "nothing");
  ASSERT_TRUE(nothing.Spill());
  EXPECT_EQ(message(nothing),
            "spillable \"nothing\": computed again there is no array, expected [10] of f32");
  EXPECT_EQ(message(nothing), "");  // the next call gives one
  // One that needs another that needs it.
  std::optional<SpillableArray> first, second;
  first.emplace(SpillableArray::Recomputed(
      spillables, [&] { return second.has_value() ? second->Read()->Dup() : make(); }, "first"));
  second.emplace(SpillableArray::Recomputed(
      spillables, [&] { return first->Read()->Dup(); }, "second"));
  ASSERT_TRUE(first->Spill());
  ASSERT_TRUE(second->Spill());
  EXPECT_EQ(message(*first), "spillable \"first\": what computes it again needs it itself");
  EXPECT_FALSE(first->is_here());
  EXPECT_FALSE(second->is_here());
}

// While threads of the parent use them, and with what they hold: nothing in a child waits for those.
TEST(SpillableFork, AChildHasWhatIsHere) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "gcc 12's sanitizers leave locks of their own taken in the child";
#endif
  SpillFile file({.folder = testing::TempDir(), .block_bytes = 16 * SpillFile::kPageBytes});
  Spillables spillables(file);
  const auto make = [](float value) { return Full({1000}, value, DType::kFloat32, Place::Heap()); };
  std::vector<SpillableArray> busy;
  for (int i = 0; i < 4; ++i) busy.emplace_back(spillables, make(1), "busy");
  SpillableArray here(spillables, make(3), "here"), away(spillables, make(4), "away");
  ASSERT_TRUE(away.Spill());
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (SpillableArray& array : busy) {
    threads.emplace_back([&] {
      while (!stop) array.Read();
    });
  }
  for (int round = 0; round < 40; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      const auto is_refused = [](auto&& call) {
        try {
          call();
        } catch (const Error& error) {
          return error.code() == absl::StatusCode::kFailedPrecondition &&
                 std::string(error.what()).find("child of fork()") != std::string::npos;
        }
        return false;
      };
      bool is_well = here.Read()->ToVector<float>()[0] == 3;
      reinterpret_cast<float*>(here.Write()->raw_data())[999] = 4;
      is_well &= here.Read()->ToVector<float>()[999] == 4;
      is_well &= is_refused([&] { away.Read(); });
      is_well &= is_refused([&] { SpillableArray(spillables, make(5), "new"); });
      is_well &= !here.Spill() && spillables.SpillNow(1) == 0 && spillables.stats().items == 0;
      busy.clear();
      spillables.EndCycle();
      { const SpillableArray ends = std::move(here); }
      std::_Exit(is_well ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << round;
    if (status != 0) break;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(away.Read()->ToVector<float>()[0], 4);
  EXPECT_EQ(here.Read()->ToVector<float>()[0], 3);
}

}  // namespace
}  // namespace tidepool
