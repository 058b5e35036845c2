// Arrays of a device written, read, spilled, read ahead and freed by several threads, with less room on the device and in each tier than
// they need: each has what was written to it last. At random, with a seed that is printed.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/memory/spill/tier_counters.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/spill/spillable_array.h"

namespace tidepool {
namespace {

const Device kOther = {SimulatedDevice::kDevice.type, 1};
constexpr int kThreads = 4, kArrays = 14;

struct Slot {
  std::shared_mutex mutex;
  SpillableArray array;
  int64_t elements = 0;
  int64_t first = 0;  // element i is first + i
};

class Model {
 public:
  Model(uint64_t seed, SpillFile& file)
      : seed_(seed),
        spillables_(file, {{.device = kOther, .bytes = 60000}, {.device = Host(), .bytes = 60000}},
                    "model") {}

  void Run(int steps) {
    MemoryOwner& owner = MemoryOwner::Process().Child("tier model");
    const int64_t on_host = MemoryBudget::Global().Of(owner, Host()).taken_bytes;
    {
      const MemoryOwnerScope scope(owner);
      std::mt19937_64 random(seed_);
      for (Slot& slot : slots_) Renew(slot, random);
    }
    MemoryBudget::Global().SetOwnerLimit(owner, SimulatedDevice::kDevice, 150000);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([this, &owner, t, steps] {
        const MemoryOwnerScope scope(owner);
        std::mt19937_64 random(seed_ * 100 + static_cast<uint64_t>(t));
        for (int step = 0; step < steps; ++step) Step(random);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const SpillTierStats& tier : spillables_.stats().tiers) {
      for (const DeviceSpillTier& all : SpillTiersByDevice()) {
        if (all.device != tier.device) continue;
        EXPECT_EQ(all.waiting_bytes, tier.here_bytes);
      }
    }
    for (Slot& slot : slots_) Read(slot);
    MemoryBudget::Global().SetOwnerLimit(owner, SimulatedDevice::kDevice, MemoryBudget::kUnlimited);
    for (Slot& slot : slots_) slot.array = SpillableArray();
    const SpillablesStats stats = spillables_.stats();
    EXPECT_EQ(stats.items, 0);
    for (const SpillTierStats& tier : stats.tiers) EXPECT_EQ(tier.here_bytes, 0);
    for (const DeviceSpillTier& tier : SpillTiersByDevice())
      EXPECT_EQ(tier.waiting_bytes, 0) << DeviceName(tier.device);
    EXPECT_EQ(MemoryBudget::Global().Of(owner, Host()).taken_bytes, on_host);
    for (const Device device : {SimulatedDevice::kDevice, kOther})
      EXPECT_EQ(MemoryBudget::Global().Of(owner, device).taken_bytes, 0);
  }
  SpillablesStats stats() const { return spillables_.stats(); }

 private:
  template <typename Call>
  void Try(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      const bool expected = error.code() == absl::StatusCode::kResourceExhausted ||
                            error.code() == absl::StatusCode::kInternal;
      EXPECT_TRUE(expected) << error.message();
    }
  }
  static NDArray Made(int64_t elements, int64_t first) {
    NDArray array({elements}, DType::kInt64, Place::Heap());
    auto* const data = reinterpret_cast<int64_t*>(array.raw_data());
    for (int64_t i = 0; i < elements; ++i) data[i] = first + i;
    array.MarkWritten();
    return array;
  }
  bool Holds(const NDArray& array, const Slot& slot) const {
    const NDArray here = array.CopyTo(Place::Heap());
    const auto* const data = reinterpret_cast<const int64_t*>(here.raw_data());
    for (int64_t i = 0; i < slot.elements; ++i) {
      if (data[i] != slot.first + i) return false;
    }
    return here.NumElements() == slot.elements;
  }
  void Renew(Slot& slot, std::mt19937_64& random) {
    slot.array = SpillableArray();
    const int64_t elements = 1 + static_cast<int64_t>(random() % 4000);
    const int64_t first = next_.fetch_add(10000);
    const NDArray made = Made(elements, first).CopyTo(Place::On(SimulatedDevice::kDevice));
    slot.elements = elements;
    slot.first = first;
    slot.array = SpillableArray(spillables_, made, "renewed");
  }
  void Read(Slot& slot) {
    if (!slot.array.has_value()) return;
    Try([&] { EXPECT_TRUE(Holds(*slot.array.Read(), slot)) << "seed " << seed_; });
  }
  void Step(std::mt19937_64& random) {
    Slot& slot = slots_[random() % kArrays];
    switch (random() % 8) {
      case 0: {
        const std::unique_lock lock(slot.mutex);
        return Try([&] { Renew(slot, random); });
      }
      case 1: {
        const std::unique_lock lock(slot.mutex);
        if (!slot.array.has_value()) return;
        return Try([&] {
          const SpillableArray::Pinned pinned = slot.array.Write();
          const int64_t first = next_.fetch_add(10000);
          std::move(*pinned) = Made(slot.elements, first);
          slot.first = first;
        });
      }
      case 2: {
        const std::shared_lock lock(slot.mutex);
        if (slot.array.has_value()) Try([&] { slot.array.Spill(); });
        return;
      }
      case 3: {
        const std::shared_lock lock(slot.mutex);
        if (slot.array.has_value()) Try([&] { slot.array.Prefetch(); });
        return;
      }
      case 4:
        if (random() % 8 == 0) spillables_.SpillNow(20000);
        if (random() % 8 == 0) spillables_.EndCycle();
        return;
      default: {
        const std::shared_lock lock(slot.mutex);
        return Read(slot);
      }
    }
  }

  const uint64_t seed_;
  Spillables spillables_;
  std::atomic<int64_t> next_{1};
  Slot slots_[kArrays];
};

TEST(SpillableTiersModelTest, EachHasWhatWasWrittenToItLast) {
  SpillFile file({.folder = testing::TempDir()});
  int64_t went_on = 0, returned = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    // On the heap, as ThreadSanitizer takes a lock for an earlier one at its place on the stack.
    const auto model = std::make_unique<Model>(seed, file);
    model->Run(400);
    for (const SpillTierStats& tier : model->stats().tiers) {
      went_on += tier.went_on;
      returned += tier.returned;
    }
  }
  EXPECT_GT(went_on, 100);
  EXPECT_GT(returned, 100);
}

// As what finds no room there does.
TEST(SpillableTiersSizes, WhatIsLargerThanTheTierPassesItBy) {
  SpillFile file({.folder = testing::TempDir()});
  Spillables spillables(file, {{.device = Host(), .bytes = 1000}});
  SpillableArray array(spillables,
                       NDArray({1000}, DType::kFloat32, Place::On(SimulatedDevice::kDevice)));
  EXPECT_TRUE(array.Spill());
  EXPECT_EQ(spillables.stats().tiers[0].passed_by, 1);
  EXPECT_EQ(file.stats().written.bytes, 4000);
}

}  // namespace
}  // namespace tidepool
