#include "tidepool/ndarray/spill/spillable_array.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/held_bytes.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kElements = 64 << 10, kBytes = 4 * kElements;

SpillFileOptions Options() {
  SpillFileOptions options;
  options.folder = testing::TempDir();
  options.block_bytes = 16 * SpillFile::kPageBytes;
  return options;
}

NDArray Filled(float value) { return Full({kElements}, value, DType::kFloat32, Place::Heap()); }

bool IsFilled(const NDArray& array, float value) {
  const NDArray here = array.device() == Host() ? array : array.CopyTo(Place::Heap());
  const float* const data = reinterpret_cast<const float*>(here.raw_data());
  for (int64_t i = 0; i < kElements; ++i) {
    if (data[i] != value) return false;
  }
  return true;
}

// An owner with a limit of its own on the host.
class Limited {
 public:
  Limited(const std::string& name, int64_t bytes, Device device = Host())
      : owner(MemoryOwner::Process().Child(name)), device_(device) {
    Set(bytes);
  }
  ~Limited() {
    Set(MemoryBudget::kUnlimited);
    SetSoft(MemoryBudget::kUnlimited);
  }
  BudgetUsage Set(int64_t bytes) {
    return MemoryBudget::Global().SetOwnerLimit(owner, device_, bytes);
  }
  BudgetUsage SetSoft(int64_t bytes) {
    return MemoryBudget::Global().SetOwnerSoftLimit(owner, device_, bytes);
  }
  int64_t taken() const { return MemoryBudget::Global().Of(owner, device_).taken_bytes; }
  MemoryOwner& owner;

 private:
  const Device device_;
};

template <typename Call>
std::string MessageOf(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error.message());
  }
  return "";
}

TEST(SpillableArray, GoesAndComesWithItsBits) {
  SpillFile file(Options());
  Spillables spillables(file);
  const MemoryOwnerScope owner("goes and comes");
  SpillableArray array(spillables, Filled(3), "three");
  EXPECT_EQ(array.shape(), Shape({kElements}));
  EXPECT_EQ(array.dtype(), DType::kFloat32);
  EXPECT_EQ(array.device(), Host());
  EXPECT_TRUE(array.is_here());
  EXPECT_TRUE(array.Spill());
  EXPECT_FALSE(array.Spill()) << "it is away";
  EXPECT_FALSE(array.is_here());
  EXPECT_EQ(file.stats().written.bytes, kBytes);
  EXPECT_TRUE(IsFilled(*array.Read(), 3));
  EXPECT_TRUE(array.is_here());
  // What has not changed is not written again.
  EXPECT_TRUE(array.Spill());
  EXPECT_EQ(file.stats().written.bytes, kBytes);
  {
    const SpillableArray::Pinned pinned = array.Write();
    EXPECT_FALSE(array.Spill()) << "it is pinned";
    *pinned += Scalar(1);
  }
  EXPECT_TRUE(array.Spill());
  EXPECT_EQ(file.stats().written.bytes, 2 * kBytes);
  EXPECT_TRUE(IsFilled(*array.Read(), 4));
  {
    // By an operator through a handle of who only reads.
    NDArray handle = *array.Read();
    handle += Scalar(1);
    EXPECT_FALSE(array.Spill()) << "somebody has a handle";
    EXPECT_EQ(spillables.stats().elsewhere_bytes, kBytes);
  }
  EXPECT_TRUE(array.Spill());
  EXPECT_TRUE(IsFilled(*array.Read(), 5));
  // Read ahead: asked for, or given up.
  EXPECT_TRUE(array.Spill());
  array.Prefetch();
  array.Prefetch();
  EXPECT_FALSE(array.is_here());
  EXPECT_TRUE(IsFilled(*array.Read(), 5));
  EXPECT_TRUE(array.Spill());
  array.Prefetch();
  EXPECT_TRUE(array.Spill());
  EXPECT_EQ(file.stats().read.dropped, 1);
  EXPECT_TRUE(IsFilled(*array.Read(), 5));
  const SpillablesStats stats = spillables.stats();
  EXPECT_EQ(stats.items, 1);
  EXPECT_EQ(stats.here_bytes, kBytes);
  EXPECT_EQ(stats.spills, 7);
  EXPECT_EQ(stats.rewritten_bytes, 3 * kBytes);
  EXPECT_EQ(stats.failures, 0);
  EXPECT_THAT(stats.ToString(), HasSubstr("7 went (1835008 bytes, 786432 of them written)"));
  // What goes leaves nothing, pinned or not.
  {
    SpillableArray::Pinned pinned = array.Read();
    array = SpillableArray();
    EXPECT_TRUE(IsFilled(*pinned, 5));
  }
  EXPECT_EQ(spillables.stats().items, 0);
  EXPECT_EQ(file.stats().used_bytes, 0);
  EXPECT_THAT(MessageOf([&] { array.Read(); }), HasSubstr("there is none"));
}

TEST(SpillableArray, TakesOverWhatNobodyElseHas) {
  SpillFile file(Options());
  Spillables spillables(file);
  const Limited limited("takes over", MemoryBudget::kUnlimited);
  const MemoryOwnerScope owner(limited.owner);
  NDArray mine = Filled(1);
  const std::byte* const data = mine.raw_data();
  const SpillableArray taken(spillables, std::move(mine));
  EXPECT_EQ(taken.Read()->raw_data(), data);
  EXPECT_EQ(limited.taken(), kBytes);
  NDArray kept = Filled(2);
  const SpillableArray copied(spillables, kept);
  EXPECT_NE(copied.Read()->raw_data(), kept.raw_data());
  const SpillableArray part(spillables, kept.Slice(0, 0, 100));
  EXPECT_EQ(part.shape(), Shape({100}));
  Workspace workspace("takes over");
  SpillableArray from_a_cycle;
  {
    const WorkspaceScope scope(workspace);
    from_a_cycle = SpillableArray(spillables, Full({kElements}, 7.0));
  }
  EXPECT_TRUE(IsFilled(*from_a_cycle.Read(), 7));
  EXPECT_TRUE(from_a_cycle.Spill());
  {
    const WorkspaceScope scope(workspace);
    EXPECT_FALSE(from_a_cycle.Read()->IsAttached()) << "it outlives the cycle in which it comes";
  }
  EXPECT_TRUE(IsFilled(*from_a_cycle.Read(), 7));
  EXPECT_THAT(MessageOf([&] { SpillableArray(spillables, Zeros({0}), "nothing"); }),
              HasSubstr("spillable \"nothing\": found [0]"));
}

// More arrays than the limit has room for: the least recently used go, and all are what they were.
TEST(SpillableArray, ABudgetTakesTheLeastRecentlyUsed) {
  SpillFile file(Options());
  Spillables spillables(file);
  Limited limited("lru", 3 * kBytes);
  const MemoryOwnerScope owner(limited.owner);
  std::deque<SpillableArray> arrays;
  for (int i = 0; i < 3; ++i) {
    arrays.emplace_back(spillables, Filled(static_cast<float>(i)), "array");
  }
  arrays[0].Read();  // 1 is the one that was used longest ago
  arrays.emplace_back(spillables, Filled(3));
  EXPECT_TRUE(arrays[0].is_here() && !arrays[1].is_here() && arrays[2].is_here());
  arrays[1].Read();
  EXPECT_TRUE(arrays[0].is_here() && arrays[1].is_here() && !arrays[2].is_here());
  for (int i = 4; i < 12; ++i) arrays.emplace_back(spillables, Filled(static_cast<float>(i)));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 12; ++i) {
      EXPECT_TRUE(IsFilled(*arrays[static_cast<size_t>(i)].Read(), static_cast<float>(i))) << i;
      EXPECT_LE(limited.taken(), 3 * kBytes);
    }
  }
  EXPECT_EQ(spillables.stats().here_bytes + spillables.stats().away_bytes, 12 * kBytes);

  // Lowered while they are in use: what is not pinned goes at once.
  {
    const SpillableArray::Pinned pinned = arrays[5].Read();
    EXPECT_EQ(limited.Set(kBytes).over_bytes(), 0);
    EXPECT_TRUE(arrays[5].is_here());
    EXPECT_EQ(spillables.stats().here_bytes, kBytes);
    EXPECT_THROW(arrays[6].Read(), OutOfMemoryError);
    EXPECT_TRUE(IsFilled(*pinned, 5));
  }
  EXPECT_TRUE(IsFilled(*arrays[6].Read(), 6));
}

TEST(SpillableArray, ARefusalSaysWhoPinnedWhatAndWhatWouldBeEnough) {
  SpillFile file(Options());
  Spillables spillables(file);
  Limited limited("refused", 2 * kBytes);
  const MemoryOwnerScope owner(limited.owner);
  const SpillableArray a(spillables, Filled(1), "the table"), b(spillables, Filled(2), "b");
  std::optional<SpillableArray::Pinned> pinned;
  {
    const MemoryOwnerScope reader("a reader");
    pinned.emplace(a.Read());
  }
  NDArray handle = *b.Read();
  EXPECT_THAT(
      MessageOf([&] { Filled(3); }),
      AllOf(HasSubstr("262144 bytes more would have to go, or a limit of 786432; held by"),
            HasSubstr("524288 bytes could be spilled but for their use: \"the table\" 262144 "
                      "(pinned by refused/a reader), \"b\" 262144 (handles outlive a pin)")));
  handle = NDArray();
  const NDArray three = Filled(3);  // b went
  EXPECT_FALSE(b.is_here());
  EXPECT_THAT(MessageOf([&] { Filled(4); }),
              AllOf(HasSubstr("the table"), Not(HasSubstr("\"b\""))));
  // Bytes that other code has stay.
  pinned.reset();
  const auto held = std::make_unique<HeldBytes>(a.Read()->buffer());
  EXPECT_THAT(MessageOf([&] { Filled(4); }),
              HasSubstr("the table\" 262144 (other code has its bytes)"));
}

// Only what serves the request goes.
TEST(SpillableArray, OtherOwnersAndDevicesKeepTheirs) {
  SpillFile file(Options());
  Spillables spillables(file);
  Limited limited("full one", kBytes);
  SpillableArray other, below;
  {
    const MemoryOwnerScope owner("another one");
    other = SpillableArray(spillables, Filled(1));
  }
  const MemoryOwnerScope owner(limited.owner);
  {
    const MemoryTagScope tag("below");
    below = SpillableArray(spillables, Filled(2));
  }
  {
    const NDArray array = Filled(3);
    EXPECT_TRUE(other.is_here());
    EXPECT_FALSE(below.is_here());
    EXPECT_THROW(Filled(4), OutOfMemoryError);
    EXPECT_TRUE(other.is_here());
  }
  // The process's limit counts all.
  const int64_t taken = MemoryBudget::Global().process().taken_bytes;
  limited.Set(MemoryBudget::kUnlimited);
  MemoryBudget::Global().SetProcessLimit(taken);
  EXPECT_TRUE(IsFilled(Filled(5), 5));
  EXPECT_FALSE(other.is_here());
  MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  EXPECT_TRUE(IsFilled(*other.Read(), 1) && IsFilled(*below.Read(), 2));
}

TEST(SpillableArray, ASoftLimitSpillsAndRefusesNothing) {
  SpillFile file(Options());
  Spillables spillables(file);
  Limited limited("soft", MemoryBudget::kUnlimited);
  EXPECT_EQ(limited.SetSoft(2 * kBytes).soft_limit_bytes, 2 * kBytes);
  const MemoryOwnerScope owner(limited.owner);
  const SpillableArray a(spillables, Filled(1)), b(spillables, Filled(2));
  EXPECT_TRUE(a.is_here() && b.is_here());
  const NDArray c = Filled(3);
  EXPECT_TRUE(!a.is_here() && b.is_here());
  const SpillableArray::Pinned pinned = b.Read();
  const NDArray d = Filled(4), e = Filled(5);  // nothing is left to go, and they are there
  EXPECT_EQ(limited.taken(), 4 * kBytes);
  limited.SetSoft(MemoryBudget::kUnlimited);
  EXPECT_TRUE(IsFilled(*a.Read(), 1));
}

TEST(SpillableArray, WhatCanBeComputedAgainGoesLastAndIsNotWritten) {
  SpillFile file(Options());
  Spillables spillables(file);
  Limited limited("computed", 3 * kBytes);
  const MemoryOwnerScope owner(limited.owner);
  int calls = 0;
  const SpillableArray computed = SpillableArray::Recomputed(spillables, [&] {
    ++calls;
    const NDArray one = Filled(1);
    NDArray sum = Filled(8);
    sum += one;
    return sum;
  });
  const SpillableArray written(spillables, Filled(2));
  EXPECT_EQ(calls, 1);
  {
    const NDArray one = Filled(3), two = Filled(4);
    EXPECT_TRUE(computed.is_here() && !written.is_here());
    EXPECT_EQ(file.stats().written.bytes, kBytes);
    {
      const NDArray three = Filled(5);
      EXPECT_FALSE(computed.is_here());
      EXPECT_EQ(file.stats().written.bytes, kBytes);
    }
    EXPECT_THROW(computed.Read(), OutOfMemoryError) << "computing takes two arrays";
    EXPECT_FALSE(computed.is_here());
  }
  EXPECT_TRUE(IsFilled(*computed.Read(), 9));
  EXPECT_GE(calls, 2);
  EXPECT_EQ(spillables.stats().recomputed_bytes, kBytes);

  int shape = 10;
  SpillableArray other = SpillableArray::Recomputed(
      spillables, [&] { return Zeros({shape++}); }, "grows");
  EXPECT_TRUE(other.Spill());
  EXPECT_THAT(MessageOf([&] { other.Read(); }),
              HasSubstr("\"grows\": computed again it is [11] of f32, expected [10] of f32"));
}

TEST(SpillableArray, ArraysOfADeviceGoWhenItsLimitIsReached) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  {
    SpillFile file(Options());
    Spillables spillables(file);
    const Place there = Place::On(device.device());
    const SpillableArray a(spillables, Filled(1).CopyTo(there)), here(spillables, Filled(9));
    SpillableArray b(spillables, Filled(2).CopyTo(there));
    const int64_t taken = MemoryBudget::Global().Of(device.device()).taken_bytes;
    EXPECT_GE(taken, 2 * kBytes);
    MemoryBudget::Global().SetDeviceLimit(device.device(), taken);
    {
      const NDArray c = Filled(3).CopyTo(there);
      EXPECT_TRUE(!a.is_here() && b.is_here() && here.is_here());
    }
    EXPECT_EQ(a.device(), device.device());
    EXPECT_TRUE(IsFilled(*a.Read(), 1));
    b.Spill();
    b.Prefetch();
    EXPECT_EQ(b.Read()->device(), device.device());
    EXPECT_TRUE(IsFilled(*b.Read(), 2));
    MemoryBudget::Global().SetDeviceLimit(device.device(), MemoryBudget::kUnlimited);
  }
  device.Reset();
}

// A disk that is full, or fails, loses nothing: others go, or the request is refused.
TEST(SpillableArray, AFullDiskKeepsWhatIsInMemory) {
  SpillFileOptions options = Options();
  options.capacity_bytes = kBytes + 4 * SpillFile::kPageBytes;
  SpillFile file(options);
  Spillables spillables(file);
  Limited limited("full disk", 3 * kBytes);
  const MemoryOwnerScope owner(limited.owner);
  const SpillableArray a(spillables, Filled(1)), b(spillables, Filled(2)), c(spillables, Filled(3));
  {
    const NDArray one = Filled(4);  // a has the file's room
    EXPECT_FALSE(a.is_here());
    EXPECT_THROW(Filled(5), OutOfMemoryError);
    EXPECT_GE(spillables.stats().failures, 2);
    EXPECT_TRUE(b.is_here() && c.is_here());
    EXPECT_TRUE(IsFilled(*b.Read(), 2) && IsFilled(*c.Read(), 3));
  }
  EXPECT_TRUE(IsFilled(*a.Read(), 1));
}

// Callbacks are in the middle of a request.
TEST(SpillableArray, CallbacksDoNotWaitForIt) {
  SpillFile file(Options());
  Spillables spillables(file);
  Limited limited("callbacks", 2 * kBytes);
  const MemoryOwnerScope owner(limited.owner);
  const SpillableArray a(spillables, Filled(1)), b(spillables, Filled(2));
  int seen = 0;
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind != MemoryEvent::Kind::kReclaimEnds) return;
    seen += IsFilled(*b.Read(), 2);
  });
  const NDArray c = Filled(3);
  EXPECT_EQ(seen, 1);
  EXPECT_FALSE(a.is_here());
}

}  // namespace
}  // namespace tidepool
