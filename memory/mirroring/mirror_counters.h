// What mirrors have copied, by device and by who owns the buffers, since the program began.
//
// Threads: any. Cost: a mutex and a look-up per copy.
#ifndef TIDEPOOL_MEMORY_MIRRORING_MIRROR_COUNTERS_H_
#define TIDEPOOL_MEMORY_MIRRORING_MIRROR_COUNTERS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "tidepool/memory/device.h"

namespace tidepool {

struct MirrorCounters {
  uint64_t copies_to_host = 0;
  uint64_t bytes_to_host = 0;
  uint64_t copies_to_device = 0;
  uint64_t bytes_to_device = 0;
};

MirrorCounters TotalMirrorCounters();
MirrorCounters MirrorCountersOf(Device device);
// A workspace's are in its stats().
MirrorCounters MirrorCountersOf(const void* owner);
// One line per device that has copied; empty when none has.
std::string DescribeMirrorCounters();

// For mirrors, and for owners that end.
void CountMirrorCopy(Device device, const void* owner, bool to_device, size_t bytes) noexcept;
void ForgetMirrorOwner(const void* owner) noexcept;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_MIRRORING_MIRROR_COUNTERS_H_
