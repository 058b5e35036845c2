// The host's memory: the only code that asks the operating system for it.
//
// Ranges are anonymous private mappings; fresh pages are zero. Large pages are 2 MiB pages where
// the kernel has them to give (madvise): first touch of 4 KiB pages is an order of magnitude slower
// than warm memory. Blocks of up to 512 bytes are cut out of spans (small_blocks.h), larger ones come
// from malloc. Threads: any.
#ifndef TIDEPOOL_MEMORY_PROVIDER_HOST_PROVIDER_H_
#define TIDEPOOL_MEMORY_PROVIDER_HOST_PROVIDER_H_

#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

// The only one. Never destroyed.
DeviceProvider& HostProvider();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_HOST_PROVIDER_H_
