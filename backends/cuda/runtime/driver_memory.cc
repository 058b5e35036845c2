#include "tidepool/backends/cuda/runtime/driver_memory.h"

#include "cuda_runtime_api.h"

namespace tidepool::cuda {
namespace {

// Of the version that brought the newest of them (stable since).
constexpr unsigned kVersion = 10020;

template <typename Function>
bool Look(const char* name, Function* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result) !=
          cudaSuccess ||
      result != cudaDriverEntryPointSuccess || found == nullptr) {
    cudaGetLastError();
    return false;
  }
  *function = reinterpret_cast<Function>(found);
  return true;
}

}  // namespace

const DriverMemory* FindDriverMemory() {
  static DriverMemory functions;
  static const bool complete =
      Look("cuMemGetAllocationGranularity", &functions.granularity) &&
      Look("cuMemAddressReserve", &functions.reserve) &&
      Look("cuMemAddressFree", &functions.free) && Look("cuMemCreate", &functions.create) &&
      Look("cuMemRelease", &functions.release) && Look("cuMemMap", &functions.map) &&
      Look("cuMemUnmap", &functions.unmap) && Look("cuMemSetAccess", &functions.set_access) &&
      Look("cuGetErrorName", &functions.error_name) &&
      Look("cuGetErrorString", &functions.error_text);
  return complete ? &functions : nullptr;
}

std::string DescribeDriver(CUresult error, const char* call) {
  const char *name = nullptr, *text = nullptr;
  const DriverMemory* const driver = FindDriverMemory();
  if (driver == nullptr || driver->error_name(error, &name) != CUDA_SUCCESS ||
      driver->error_text(error, &text) != CUDA_SUCCESS || name == nullptr || text == nullptr) {
    return std::string(call) + ": error " + std::to_string(static_cast<int>(error));
  }
  return std::string(call) + ": " + name + ": " + text;
}

}  // namespace tidepool::cuda
