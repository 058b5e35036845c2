// Devices and kinds that there cannot be: refused wherever the ledger and the budget are asked about
// them, with a message that names what was found, and nothing is changed.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/mirror_counters.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

std::string RefusalOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "was taken";
}

struct Nowhere {
  Device device;
  const char* message;
};
const Nowhere kNowhere[] = {
    {{DeviceType::kCuda, 16}, "found device cuda:16, expected index 0 to 15"},
    {{DeviceType::kCuda, 200}, "found device cuda:200, expected index 0 to 15"},
    {{DeviceType::Named("simulated"), 255}, "found device simulated:255, expected index 0 to 15"},
    {{DeviceType::kHost, 1}, "found device host:1, expected index 0: there is one host"},
    {{DeviceType::kHost, 255}, "found device host:255, expected index 0: there is one host"},
};
const auto kNoKind = static_cast<MemoryKind>(99);

TEST(NoSuchDevice, IsRefusedByNameAtEveryEntrance) {
  MemoryTracker& ledger = MemoryTracker::Global();
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryOwner& owner = MemoryOwner::Process().Child("nowhere");
  struct Observer final : LedgerObserver {
    void Observe(const LedgerReading&) noexcept override {}
  } observer;
  struct Entrance {
    const char* name;  // in the message
    std::function<void(Device)> call;
  };
  const Entrance entrances[] = {
      {"MemoryCharge",
       [](Device device) { MemoryCharge(MemoryKind::kAllocated, 1 << 20, device); }},
      {"MemoryCharge", [](Device device) { MemoryCharge(MemoryKind::kAllocated, 0, device); }},
      {"MemoryCharge", [](Device device) { MemoryCharge::Imported(64, device); }},
      {"PeakScope", [](Device device) { PeakScope peak(device); }},
      {"memory budget", [&](Device device) { budget.SetDeviceLimit(device, 100); }},
      {"memory budget", [&](Device device) { budget.SetOwnerLimit(owner, device, 100); }},
      {"memory budget", [&](Device device) { budget.Of(device); }},
      {"memory budget", [&](Device device) { budget.Of(owner, device); }},
      {"memory budget", [&](Device device) { budget.TryReserve(device, owner, 1); }},
      {"memory budget", [&](Device device) { budget.Reserve(device, owner, 1, "pages"); }},
      {"memory budget",
       [&](Device device) { budget.CountWithoutLimits(device, MemoryKind::kAllocated, owner, 1); }},
      {"ledger", [&](Device device) { ledger.Add(device, MemoryKind::kAllocated, 1); }},
      {"ledger", [&](Device device) { ledger.AddClaimed(device, MemoryKind::kExternal, 1); }},
      {"ledger", [&](Device device) { ledger.CurrentBytes(device, MemoryKind::kAllocated); }},
      {"ledger",
       [&](Device device) {
         MemoryAccount account(device);
         ledger.Register(&account);
       }},
      {"ledger",
       [&](Device device) {
         MemoryKind kind = MemoryKind::kAllocated;
         ledger.ChangeKind(device, &kind, MemoryKind::kExternal, 0, nullptr);
       }},
      {"ledger", [&](Device device) { ledger.Observe(&observer, device, nullptr); }},
      {"memory budget", [](Device device) { BudgetCharge(device).GrowTo(1, "pages"); }},
      {"mirror counters", [](Device device) { MirrorCountersOf(device); }},
  };
  const MemorySnapshot before = ledger.Snapshot();
  for (const Entrance& entrance : entrances) {
    for (const Nowhere& nowhere : kNowhere) {
      const std::string message = RefusalOf([&] { entrance.call(nowhere.device); });
      EXPECT_THAT(message, HasSubstr(nowhere.message));
      EXPECT_THAT(message, HasSubstr(entrance.name));
    }
  }
  const MemorySnapshot after = ledger.Snapshot();
  EXPECT_EQ(after.devices.size(), before.devices.size());
  EXPECT_EQ(after[Host()].total.current_bytes, before[Host()].total.current_bytes);
  EXPECT_EQ(budget.process().taken_bytes, 0);
  EXPECT_FALSE(budget.limited());
}

TEST(NoSuchKind, IsRefusedWithNothingCounted) {
  MemoryTracker& ledger = MemoryTracker::Global();
  PeakScope peak;
  for (const std::function<void()>& call : std::vector<std::function<void()>>{
           [] { MemoryCharge(kNoKind, 1); }, [] { MemoryCharge(kNoKind, 0); },
           [&] { ledger.Add(Host(), kNoKind, 1); }, [&] { ledger.AddClaimed(Host(), kNoKind, 1); },
           [&] { ledger.CurrentBytes(Host(), kNoKind); },
           [&] {
             MemoryBudget::Global().CountWithoutLimits(Host(), kNoKind, MemoryOwner::Process(), 1);
           },
           [&] { peak.peak_bytes(kNoKind); }}) {
    EXPECT_THAT(RefusalOf(call), HasSubstr("found kind 99, expected 0 to 6"));
  }
  MemoryKind kind = MemoryKind::kAllocated;
  const MemoryCharge charge(kind, 100);
  EXPECT_THAT(
      RefusalOf([&] { ledger.ChangeKind(Host(), &kind, kNoKind, 100, &MemoryOwner::Process()); }),
      HasSubstr("found kind 99"));
  EXPECT_EQ(kind, MemoryKind::kAllocated);
  EXPECT_EQ(ledger.CurrentBytes(Host(), MemoryKind::kAllocated), 100);
  EXPECT_EQ(peak.peak_bytes(), 100);
  EXPECT_EQ(MemoryBudget::Global().process().taken_bytes, 100);
  EXPECT_STREQ(MemoryKindName(kNoKind), "unknown");
}

}  // namespace
}  // namespace tidepool
