// The driver's virtual memory functions, found through the runtime: programs link without libcuda and
// start where there is no driver.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_DRIVER_MEMORY_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_DRIVER_MEMORY_H_

#include "cuda.h"

namespace tidepool::cuda {

struct DriverMemory {
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
};

// Null when the driver is absent or lacks one of them. Threads: any; looked up once.
const DriverMemory* FindDriverMemory();

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_DRIVER_MEMORY_H_
