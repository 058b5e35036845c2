// The driver's virtual memory functions, found through the runtime: programs link without libcuda and
// start where there is no driver.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_DRIVER_MEMORY_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_DRIVER_MEMORY_H_

#include <string>

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
  decltype(&cuGetErrorName) error_name;
  decltype(&cuGetErrorString) error_text;
};

// Null when the driver is absent or lacks one of them. Threads: any; looked up once.
const DriverMemory* FindDriverMemory();

// "cuMemCreate: CUDA_ERROR_NOT_SUPPORTED: operation not supported".
std::string DescribeDriver(CUresult error, const char* call);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_DRIVER_MEMORY_H_
