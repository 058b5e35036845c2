// Memory of the host in which arrays of a device wait: page-locked where the device has such, so that copies go at the bus's pace.
#ifndef TIDEPOOL_MEMORY_SPILL_HOST_BLOCK_H_
#define TIDEPOOL_MEMORY_SPILL_HOST_BLOCK_H_

#include <cstddef>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device.h"

namespace tidepool {

// A block of `bytes` for copies to and from `device`, as any heap block of the host otherwise: charged to MemoryOwner::Current(),
// in the budgets of the host, of one reference, for a BufferHandle to adopt. Throws OutOfMemoryError, and kUnimplemented where no
// provider of the device is linked. Threads: any. Cost: what the device's page-locked memory costs.
Buffer* NewHostBlockFor(Device device, size_t bytes);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_HOST_BLOCK_H_
