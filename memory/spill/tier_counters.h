// What waited in tiers between devices and the file (spillables.h), of one tier or of all tiers of a device's memory.
//
// Threads: any. Cost: an addition or two for each event.
#ifndef TIDEPOOL_MEMORY_SPILL_TIER_COUNTERS_H_
#define TIDEPOOL_MEMORY_SPILL_TIER_COUNTERS_H_

#include <cstdint>

#include "tidepool/memory/device.h"

namespace tidepool {

// Ever. Nanoseconds are those that somebody waited for the copy.
struct SpillTierCounters {
  int64_t came = 0, came_bytes = 0,
          came_nanoseconds = 0;  // from where they live, or the tier before
  int64_t returned = 0, returned_bytes = 0, returned_nanoseconds = 0;  // to where they live
  int64_t went_on = 0, went_on_bytes = 0;  // to the next tier, or the file
  int64_t passed_by = 0;                   // it had no room for them
};

// Of all tiers in that device's memory since the process began. kInvalidArgument for one that there cannot be.
SpillTierCounters TotalSpillTierCounters(Device device);

namespace internal {

// Adds `change` to `*counters`, and to those of all tiers of the device, one that there may be.
void CountSpillTier(Device device, SpillTierCounters* counters,
                    const SpillTierCounters& change) noexcept;

}  // namespace internal
}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_TIER_COUNTERS_H_
