// What waited in tiers between devices and the file: arrays (spillables.h) and what activation plans of devices keep (host_blocks.h). Of one
// tier, or of all tiers in a device's memory.
//
// Threads: any. Cost: an addition or two for each event.
#ifndef TIDEPOOL_MEMORY_SPILL_TIER_COUNTERS_H_
#define TIDEPOOL_MEMORY_SPILL_TIER_COUNTERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/device.h"

namespace tidepool {

// Ever. Nanoseconds are those that somebody waited for the copy: none for a plan's, which are queued.
struct SpillTierCounters {
  int64_t came = 0, came_bytes = 0,
          came_nanoseconds = 0;  // from where they live, or the tier before
  int64_t returned = 0, returned_bytes = 0, returned_nanoseconds = 0;  // to where they live
  int64_t went_on = 0, went_on_bytes = 0;  // to the next tier, or the file
  int64_t passed_by = 0;                   // it had no room for them

  bool any() const { return came + passed_by > 0; }
};

// All tiers in one device's memory. Those that came, and neither returned, went on nor wait, were freed there.
struct DeviceSpillTier {
  Device device = Host();      // of which the memory is
  int64_t waiting_bytes = 0;   // now
  int64_t peak_bytes = 0;      // at most at once
  SpillTierCounters counters;  // since the process began
};

// Of all tiers in that device's memory since the process began. kInvalidArgument for one that there cannot be.
SpillTierCounters TotalSpillTierCounters(Device device);
// Of each device in whose memory anything came or passed by, the host first. Numbers of one device are not all of one moment.
std::vector<DeviceSpillTier> SpillTiersByDevice();
// A line for each, "spill tier host: ..."; empty where there is none.
std::string DescribeSpillTiers(const std::vector<DeviceSpillTier>& tiers);

namespace internal {

// Adds `change` to those of all tiers of the device, one that there may be; and to `*counters`.
void CountSpillTier(Device device, const SpillTierCounters& change) noexcept;
void CountSpillTier(Device device, SpillTierCounters* counters,
                    const SpillTierCounters& change) noexcept;
// SpillTiersByDevice() without memory. Cost: four loads where there is none, and twelve for each.
void ForEachSpillTier(absl::FunctionRef<void(const DeviceSpillTier&)> function);

// Counts bytes as waiting in that device's memory for as long as it is there. One thread at a time.
class WaitingInTier {
 public:
  WaitingInTier() = default;  // none
  WaitingInTier(Device device, int64_t bytes) noexcept;
  WaitingInTier(WaitingInTier&& other) noexcept;
  WaitingInTier& operator=(WaitingInTier&& other) noexcept;
  ~WaitingInTier() { Reset(); }
  void Reset() noexcept;

 private:
  Device device_ = Host();
  int64_t bytes_ = 0;
};

}  // namespace internal
}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_TIER_COUNTERS_H_
