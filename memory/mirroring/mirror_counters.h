// What mirrors have copied, by device and by who owns the buffers, since the program began; what they had
// no need to copy; and how often an operator meant for a device ran on the host.
//
// Threads: any. Cost: a mutex and a look-up per copy.
#ifndef TIDEPOOL_MEMORY_MIRRORING_MIRROR_COUNTERS_H_
#define TIDEPOOL_MEMORY_MIRRORING_MIRROR_COUNTERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"

namespace tidepool {

struct MirrorCounters {
  // Copies of ranges that were queued or made, and their bytes.
  uint64_t copies_to_host = 0;
  uint64_t bytes_to_host = 0;
  uint64_t copies_to_device = 0;
  uint64_t bytes_to_device = 0;
  // Accesses of the host, and uses of the device, that found their bytes fresh. Of devices and the
  // process, not of owners.
  uint64_t avoided_to_host = 0;
  uint64_t avoided_to_device = 0;

  // Whether anything was copied or found fresh.
  bool any() const {
    return copies_to_host + copies_to_device + avoided_to_host + avoided_to_device > 0;
  }
};

// Of one device.
struct DeviceMirrorCounters {
  Device device;            // whose buffers have the mirrors
  MirrorCounters counters;  // of all of them
};

// Of the process, by device, and of one device.
MirrorCounters TotalMirrorCounters();
std::vector<DeviceMirrorCounters> MirrorCountersByDevice();  // of those with any
MirrorCounters MirrorCountersOf(Device device);

// A workspace's are in its stats().
MirrorCounters MirrorCountersOf(const void* owner);
// One line per device with mirrors, and one for fallbacks; empty when there were none.
std::string DescribeMirrorCounters();
std::string DescribeMirrorCounters(const std::vector<DeviceMirrorCounters>& all,
                                   uint64_t fallbacks);

// For mirrors, and for owners that end.
void CountMirrorCopy(Device device, const void* owner, bool to_device, size_t bytes) noexcept;
void CountMirrorAvoided(Device device, bool to_device) noexcept;
void ForgetMirrorOwner(const void* owner) noexcept;

// Operators of all kinds; by operator: ndarray/host_fallback.h, by workspace: its stats().
void CountHostFallback() noexcept;
uint64_t TotalHostFallbacks();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_MIRRORING_MIRROR_COUNTERS_H_
