// Arrays of devices that wait in the memory of the host or of another device before they go to the file.
#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_timeline.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/spill/spillable_array.h"

namespace tidepool {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kElements = 64 << 10, kBytes = 4 * kElements;
const Device kOther = {SimulatedDevice::kDevice.type, 1};

SpillFileOptions Options() {
  SpillFileOptions options;
  options.folder = testing::TempDir();
  options.block_bytes = 16 * SpillFile::kPageBytes;
  return options;
}

NDArray Filled(float value, Device device = SimulatedDevice::kDevice) {
  return Full({kElements}, value, DType::kFloat32, Place::Heap()).CopyTo(Place::On(device));
}

bool IsFilled(const NDArray& array, float value) {
  const NDArray here = array.CopyTo(Place::Heap());
  const float* const data = reinterpret_cast<const float*>(here.raw_data());
  for (int64_t i = 0; i < kElements; ++i) {
    if (data[i] != value) return false;
  }
  return true;
}

class SpillableTiersTest : public testing::Test {
 protected:
  SpillableTiersTest() {
    SimulatedDevice::Get().Reset();
    SimulatedDevice::Get().set_has_pinned_host(true);
  }
  ~SpillableTiersTest() override {
    for (const Device device : {Host(), SimulatedDevice::kDevice, kOther})
      MemoryBudget::Global().SetDeviceLimit(device, MemoryBudget::kUnlimited);
    MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  }
  // Of `count` arrays of simulated:0 the first, second... have 1, 2...
  std::vector<SpillableArray> Arrays(Spillables& spillables, int count) {
    std::vector<SpillableArray> arrays;
    for (int i = 0; i < count; ++i)
      arrays.emplace_back(spillables, Filled(static_cast<float>(i + 1)), "array");
    return arrays;
  }
  static void ExpectAll(const std::vector<SpillableArray>& arrays) {
    for (size_t i = 0; i < arrays.size(); ++i)
      EXPECT_TRUE(IsFilled(*arrays[i].Read(), static_cast<float>(i + 1))) << i;
  }
  static DeviceSpillTier InLedger(Device device) {
    for (const DeviceSpillTier& tier : MemoryTracker::Global().Snapshot().spill_tiers) {
      if (tier.device == device) return tier;
    }
    return {};
  }
  static int64_t Taken(Device device) { return MemoryBudget::Global().Of(device).taken_bytes; }

  SpillFile file_{Options()};
};

TEST_F(SpillableTiersTest, WaitInPageLockedMemoryAndComeBackWithoutTheFile) {
  Spillables spillables(file_, {{.device = Host()}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 4);
  const int64_t on_host = Taken(Host());
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  EXPECT_EQ(SimulatedDevice::Get().used_bytes(), 0u);
  EXPECT_EQ(SimulatedDevice::Get().pinned_bytes(), static_cast<size_t>(4 * kBytes));
  EXPECT_EQ(Taken(Host()) - on_host, 4 * kBytes);
  SpillablesStats stats = spillables.stats();
  EXPECT_EQ(stats.items, 4);
  EXPECT_EQ(stats.away_bytes, 4 * kBytes);
  EXPECT_EQ(stats.spilled_bytes, 4 * kBytes);
  EXPECT_EQ(stats.rewritten_bytes, 0);
  ASSERT_EQ(stats.tiers.size(), 1u);
  EXPECT_EQ(stats.tiers[0].here_bytes, 4 * kBytes);
  EXPECT_THAT(stats.ToString(), HasSubstr("tier host: 1048576 bytes of any; 4 came"));

  ExpectAll(arrays);
  stats = spillables.stats();
  EXPECT_EQ(stats.tiers[0].here_bytes, 0);
  EXPECT_EQ(stats.tiers[0].returned_bytes, 4 * kBytes);
  EXPECT_EQ(SimulatedDevice::Get().pinned_bytes(), 0u);
  EXPECT_EQ(Taken(Host()), on_host);
  EXPECT_EQ(file_.stats().written.bytes, 0);
  EXPECT_EQ(file_.stats().read.bytes, 0);
}

TEST_F(SpillableTiersTest, BudgetsOfTheDeviceAskThem) {
  Spillables spillables(file_, {{.device = Host()}});
  MemoryBudget::Global().SetDeviceLimit(SimulatedDevice::kDevice, 2 * kBytes);
  const std::vector<SpillableArray> arrays = Arrays(spillables, 6);
  for (int round = 0; round < 3; ++round) ExpectAll(arrays);
  EXPECT_LE(Taken(SimulatedDevice::kDevice), 2 * kBytes);
  EXPECT_EQ(file_.stats().written.bytes, 0);
}

TEST_F(SpillableTiersTest, AFullTierHandsOnWhatWasUsedLeastRecently) {
  Spillables spillables(file_, {{.device = Host(), .bytes = 2 * kBytes}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 4);
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  const SpillTierStats tier = spillables.stats().tiers[0];
  EXPECT_EQ(tier.here_bytes, 2 * kBytes);
  EXPECT_EQ(tier.limit_bytes, 2 * kBytes);
  EXPECT_EQ(tier.went_on, 2);
  EXPECT_EQ(file_.stats().written.bytes, 2 * kBytes);
  // The last two are on the host still.
  EXPECT_TRUE(IsFilled(*arrays[3].Read(), 4));
  EXPECT_TRUE(IsFilled(*arrays[2].Read(), 3));
  EXPECT_EQ(file_.stats().read.bytes, 0);
  ExpectAll(arrays);
  EXPECT_EQ(file_.stats().read.bytes, 2 * kBytes);
}

TEST_F(SpillableTiersTest, WhatHasNotChangedIsWrittenToTheFileOnce) {
  Spillables spillables(file_, {{.device = Host(), .bytes = kBytes}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 3);
  for (int round = 0; round < 5; ++round) {
    for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
    ExpectAll(arrays);
  }
  // Two went to the file in the first round, and the third one in none or one of the others.
  EXPECT_LE(file_.stats().written.bytes, 3 * kBytes);
  arrays[0].Write()->CopyTo(Place::Heap());
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  EXPECT_LE(file_.stats().written.bytes, 4 * kBytes);
  ExpectAll(arrays);
}

TEST_F(SpillableTiersTest, WhatHasChangedIsWhatComesBack) {
  Spillables spillables(file_, {{.device = Host(), .bytes = kBytes}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 2);
  for (int round = 1; round < 6; ++round) {
    for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
    for (SpillableArray& array : arrays) {
      const SpillableArray::Pinned pinned = array.Write();
      *pinned = Filled(static_cast<float>(10 * round));
    }
    for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
    for (SpillableArray& array : arrays) EXPECT_TRUE(IsFilled(*array.Read(), 10.0f * round));
  }
}

TEST_F(SpillableTiersTest, TheHostsBudgetSendsThemOnToTheFile) {
  Spillables spillables(file_, {{.device = Host()}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 4);
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  MemoryBudget::Global().SetDeviceLimit(Host(), Taken(Host()) + kBytes / 2);
  const NDArray others = Full({2 * kElements}, 7.0f, DType::kFloat32, Place::Heap());
  EXPECT_GE(spillables.stats().tiers[0].went_on, 2);
  EXPECT_GE(file_.stats().written.bytes, 2 * kBytes);
  ExpectAll(arrays);
}

TEST_F(SpillableTiersTest, WhereTheHostHasNoRoomTheyGoPastIt) {
  MemoryBudget::Global().SetDeviceLimit(Host(), Taken(Host()) + 4 * kBytes);
  Spillables spillables(file_, {{.device = Host()}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 2);
  const NDArray others =
      Full({2 * kElements + kElements / 2}, 7.0f, DType::kFloat32, Place::Heap());
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  const SpillTierStats tier = spillables.stats().tiers[0];
  EXPECT_EQ(tier.came, 2);  // the first one made room for the second
  EXPECT_EQ(tier.went_on, 1);
  ExpectAll(arrays);
}

TEST_F(SpillableTiersTest, TheProcesssLimitIsServedByTheFileAlone) {
  Spillables spillables(file_, {{.device = kOther}, {.device = Host()}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 4);
  EXPECT_TRUE(arrays[0].Spill());  // to simulated:1
  MemoryBudget::Global().SetProcessLimit(MemoryBudget::Global().process().taken_bytes + kBytes);
  const NDArray others = Full({5 * kElements}, 7.0f, DType::kFloat32, Place::Heap());
  const SpillablesStats stats = spillables.stats();
  EXPECT_EQ(stats.tiers[0].here_bytes, 0);
  EXPECT_EQ(stats.tiers[1].came, 0);
  EXPECT_GE(file_.stats().written.bytes, 2 * kBytes);
  MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  ExpectAll(arrays);
}

TEST_F(SpillableTiersTest, AnotherDevicesMemoryThenTheHostsThenTheFile) {
  Spillables spillables(
      file_, {{.device = kOther, .bytes = 2 * kBytes}, {.device = Host(), .bytes = 2 * kBytes}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 6);
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  SpillablesStats stats = spillables.stats();
  EXPECT_EQ(Taken(kOther), 2 * kBytes);
  EXPECT_EQ(stats.tiers[0].here_bytes, 2 * kBytes);
  EXPECT_EQ(stats.tiers[1].here_bytes, 2 * kBytes);
  EXPECT_EQ(stats.tiers[0].went_on, 4);
  EXPECT_EQ(stats.tiers[1].went_on, 2);
  EXPECT_EQ(file_.stats().written.bytes, 2 * kBytes);
  ExpectAll(arrays);
  stats = spillables.stats();
  EXPECT_EQ(stats.tiers[0].here_bytes + stats.tiers[1].here_bytes, 0);
  EXPECT_EQ(SimulatedDevice::Get(1).used_bytes(), 0u);
  EXPECT_EQ(stats.here_bytes, 6 * kBytes);
}

TEST_F(SpillableTiersTest, ArraysOfATiersOwnDeviceGoToTheNextOne) {
  Spillables spillables(file_, {{.device = kOther}, {.device = Host()}});
  SpillableArray array(spillables, Filled(3, kOther), "there");
  EXPECT_TRUE(array.Spill());
  EXPECT_EQ(spillables.stats().tiers[0].came, 0);
  EXPECT_EQ(spillables.stats().tiers[1].came, 1);
  SpillableArray host(spillables, Full({kElements}, 5.0f, DType::kFloat32, Place::Heap()), "host");
  EXPECT_TRUE(host.Spill());
  EXPECT_EQ(spillables.stats().tiers[1].came, 1);
  EXPECT_TRUE(IsFilled(*array.Read(), 3));
  EXPECT_TRUE(IsFilled(*host.Read(), 5));
  EXPECT_EQ((*array.Read()).device(), kOther);
}

TEST_F(SpillableTiersTest, ADeviceThatRefusesIsPassedBy) {
  Spillables spillables(file_, {{.device = kOther}, {.device = Host()}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 2);
  SimulatedDevice::Get(1).set_capacity(SimulatedDevice::kGranularity);
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  EXPECT_EQ(spillables.stats().tiers[0].came, 0);
  EXPECT_EQ(spillables.stats().tiers[1].came, 2);
  ExpectAll(arrays);
  SimulatedDevice::Get(1).Reset();
}

TEST_F(SpillableTiersTest, WhatDoesNotFitBackStaysInItsTier) {
  Spillables spillables(file_, {{.device = Host()}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 2);
  EXPECT_TRUE(arrays[0].Spill());
  {
    const SpillableArray::Pinned other = arrays[1].Read();
    MemoryBudget::Global().SetDeviceLimit(SimulatedDevice::kDevice, kBytes);
    EXPECT_THAT(CatchStatus([&] { arrays[0].Read(); }).message(),
                HasSubstr("could be spilled but for"));
    EXPECT_EQ(spillables.stats().tiers[0].here_bytes, kBytes);
  }
  // And may go on from it.
  spillables.SpillNow(4 * kBytes);
  EXPECT_EQ(spillables.stats().tiers[0].here_bytes, 0);
  ExpectAll(arrays);
}

TEST_F(SpillableTiersTest, ReadAheadTakesWhatHasGoneOnFromTheFile) {
  Spillables spillables(file_, {{.device = Host(), .bytes = kBytes}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 2);
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  for (SpillableArray& array : arrays) array.Prefetch();
  ExpectAll(arrays);
  EXPECT_EQ(file_.stats().read.bytes, kBytes);
}

TEST_F(SpillableTiersTest, ArraysThatEndLeaveTheirTier) {
  Spillables spillables(file_, {{.device = kOther, .bytes = kBytes}, {.device = Host()}});
  const int64_t on_host = Taken(Host());
  std::vector<SpillableArray> arrays = Arrays(spillables, 3);
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  arrays.clear();
  EXPECT_EQ(Taken(Host()), on_host);
  EXPECT_EQ(SimulatedDevice::Get(1).used_bytes(), 0u);
  const SpillablesStats stats = spillables.stats();
  EXPECT_EQ(stats.items, 0);
  EXPECT_EQ(stats.tiers[0].here_bytes + stats.tiers[1].here_bytes, 0);
}

TEST_F(SpillableTiersTest, AFullDiskKeepsThemInTheirTier) {
  SpillFileOptions options = Options();
  options.capacity_bytes = kBytes;
  SpillFile small(options);
  Spillables spillables(small, {{.device = Host(), .bytes = 2 * kBytes}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 5);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(arrays[static_cast<size_t>(i)].Spill());
  EXPECT_THAT(CatchStatus([&] { arrays[3].Spill(); }).message(), HasSubstr("capacity"));
  EXPECT_EQ(spillables.stats().tiers[0].here_bytes, 2 * kBytes);
  EXPECT_TRUE(arrays[3].is_here());
  ExpectAll(arrays);
}

TEST_F(SpillableTiersTest, WrongTiersAreRefused) {
  EXPECT_THAT(CatchStatus([&] { Spillables(file_, {{.bytes = 0}}); }).message(),
              HasSubstr("tier 0: found 0 bytes, expected more than 0"));
  EXPECT_THAT(CatchStatus([&] {
                Spillables(file_, {{.device = kOther}, {.device = Host()}, {.device = kOther}});
              }).message(),
              HasSubstr("tier 2: found simulated:1 again, expected each device once"));
  EXPECT_THAT(CatchStatus([&] {
                Spillables(file_, {{.device = {SimulatedDevice::kDevice.type, 7}}});
              }).message(),
              HasSubstr("tier 0"));
}

TEST_F(SpillableTiersTest, ALoweredLimitOfATiersDeviceHoldsAtOnce) {
  Spillables spillables(file_, {{.device = kOther}, {.device = Host(), .bytes = kBytes}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 6);
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  EXPECT_EQ(Taken(kOther), 6 * kBytes);
  EXPECT_LE(MemoryBudget::Global().SetDeviceLimit(kOther, kBytes / 2).taken_bytes, kBytes / 2);
  EXPECT_EQ(spillables.stats().tiers[0].here_bytes, 0);
  EXPECT_EQ(spillables.stats().tiers[1].here_bytes, kBytes);
  ExpectAll(arrays);
}

// The memory that an array is to leave is no tier for it, wherever it waits.
TEST_F(SpillableTiersTest, TiersOfTheDeviceWhereTheyLiveArePassedBy) {
  Spillables spillables(file_, {{.device = kOther, .bytes = kBytes},
                                {.device = SimulatedDevice::kDevice},
                                {.device = Host()}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 4);
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  EXPECT_EQ(Taken(SimulatedDevice::kDevice), 0);
  EXPECT_EQ(spillables.stats().tiers[1].came, 0);
  EXPECT_EQ(spillables.stats().tiers[2].came, 3);
  ExpectAll(arrays);
}

TEST_F(SpillableTiersTest, TheHostHandsOnToAnotherDevice) {
  Spillables spillables(file_, {{.device = Host(), .bytes = kBytes}, {.device = kOther}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 4);
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  EXPECT_EQ(spillables.stats().tiers[1].here_bytes, 3 * kBytes);
  EXPECT_EQ(file_.stats().written.bytes, 0);
  ExpectAll(arrays);
}

// What waits in two tiers, and what went each way, as the ledger and a timeline tell it.
TEST_F(SpillableTiersTest, TheLedgerAndATimelineHaveThem) {
  MemoryTimeline timeline({.capacity = 500, .granularity_bytes = 1});
  Spillables spillables(file_, {{.device = kOther, .bytes = 2 * kBytes}, {.device = Host()}});
  std::vector<SpillableArray> arrays = Arrays(spillables, 3);
  const DeviceSpillTier other = InLedger(kOther), host = InLedger(Host());
  EXPECT_EQ(other.waiting_bytes + host.waiting_bytes, 0);
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  EXPECT_EQ(InLedger(kOther).waiting_bytes, 2 * kBytes);
  EXPECT_EQ(InLedger(Host()).waiting_bytes, kBytes);
  EXPECT_EQ(InLedger(kOther).counters.went_on_bytes - other.counters.went_on_bytes, kBytes);
  EXPECT_GT(InLedger(kOther).counters.came_nanoseconds, other.counters.came_nanoseconds);
  EXPECT_TRUE(IsFilled(*arrays[0].Read(), 1));  // from the host
  EXPECT_EQ(InLedger(Host()).waiting_bytes, 0);
  EXPECT_EQ(InLedger(Host()).counters.returned_bytes - host.counters.returned_bytes, kBytes);
  arrays.clear();  // two of them in their tier
  EXPECT_EQ(InLedger(kOther).waiting_bytes, 0);
  EXPECT_GE(InLedger(kOther).peak_bytes, 2 * kBytes);

  timeline.Stop();
  int64_t most = 0;
  MemoryTimeline::TierSample last;
  for (const MemoryTimeline::TierSample& sample : timeline.tier_samples()) {
    if (sample.device != kOther) continue;
    most = std::max(most, sample.waiting_bytes);
    last = sample;
  }
  EXPECT_GE(most, 2 * kBytes);
  EXPECT_EQ(last.came_bytes, InLedger(kOther).counters.came_bytes);
  EXPECT_EQ(last.went_on_bytes, InLedger(kOther).counters.went_on_bytes);
  EXPECT_GT(last.stall_nanoseconds, 0);
  EXPECT_EQ(timeline.dropped_tier_samples(), 0);
  EXPECT_THAT(timeline.ToJson(), AllOf(HasSubstr("\"device\":\"simulated:1\",\"waiting_bytes\":"),
                                       HasSubstr("\"dropped_tier_samples\":0")));
  EXPECT_THAT(timeline.ToChromeTrace(), AllOf(HasSubstr("{\"name\":\"spill tier host\""),
                                              HasSubstr("{\"name\":\"spill tier simulated:1\"")));
}

// A plan knows which of those in the tier is used next.
TEST_F(SpillableTiersTest, APlanKeepsInTheTierWhatIsUsedSoonest) {
  // One on the device, three in the tier, two in the file, at each time of a sweep over six.
  Spillables spillables(file_, {{.device = Host(), .bytes = 3 * kBytes}});
  spillables.set_ahead(false);  // which reads some in vain, by chance
  MemoryBudget::Global().SetDeviceLimit(SimulatedDevice::kDevice, kBytes);
  const std::vector<SpillableArray> arrays = Arrays(spillables, 6);
  int64_t read_before = 0;
  for (int cycle = 0; cycle < 12; ++cycle) {
    if (cycle == 6) read_before = file_.stats().read.bytes;
    ExpectAll(arrays);
    spillables.EndCycle();
  }
  // By least recent use each would come from the file; four have room, and the best there is keeps three of them.
  EXPECT_LE(file_.stats().read.bytes - read_before, 6 * 3 * kBytes);
}

}  // namespace
}  // namespace tidepool
