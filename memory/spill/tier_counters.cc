#include "tidepool/memory/spill/tier_counters.h"

#include <atomic>

#include "tidepool/memory/device_check.h"

namespace tidepool {
namespace {

using Member = int64_t SpillTierCounters::*;
constexpr Member kMembers[] = {&SpillTierCounters::came,
                               &SpillTierCounters::came_bytes,
                               &SpillTierCounters::came_nanoseconds,
                               &SpillTierCounters::returned,
                               &SpillTierCounters::returned_bytes,
                               &SpillTierCounters::returned_nanoseconds,
                               &SpillTierCounters::went_on,
                               &SpillTierCounters::went_on_bytes,
                               &SpillTierCounters::passed_by};
constexpr int kCount = sizeof(kMembers) / sizeof(kMembers[0]);
static_assert(sizeof(SpillTierCounters) == kCount * sizeof(int64_t));

constinit std::atomic<int64_t> totals[kDevicePlaces][kCount];

}  // namespace

SpillTierCounters TotalSpillTierCounters(Device device) {
  const std::atomic<int64_t>* const of_device = totals[DevicePlace("spill tiers", device)];
  SpillTierCounters all;
  for (int i = 0; i < kCount; ++i) all.*kMembers[i] = of_device[i].load(std::memory_order_relaxed);
  return all;
}

namespace internal {

void CountSpillTier(Device device, SpillTierCounters* counters,
                    const SpillTierCounters& change) noexcept {
  std::atomic<int64_t>* const of_device = totals[DevicePlace("spill tiers", device)];
  for (int i = 0; i < kCount; ++i) {
    const int64_t by = change.*kMembers[i];
    if (by == 0) continue;
    counters->*kMembers[i] += by;
    of_device[i].fetch_add(by, std::memory_order_relaxed);
  }
}

}  // namespace internal
}  // namespace tidepool
