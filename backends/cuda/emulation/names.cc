// Names of errors, and of the driver's functions.
#include <cstring>

#include "cuda.h"
#include "cuda_runtime_api.h"

namespace {

struct ErrorName {
  int error;
  const char* name;
  const char* text;
};
constexpr ErrorName kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

const ErrorName& Find(int error) {
  static constexpr ErrorName kUnknown = {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  for (const ErrorName& known : kErrors) {
    if (known.error == error) return known;
  }
  return kUnknown;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) { return Find(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return Find(error).text; }

CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == CUDA_ERROR_NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED"
                                              : "CUDA_ERROR";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = Find(error).text;
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
#define TIDEPOOL_DRIVER_FUNCTION(name) \
  if (std::strcmp(symbol, #name) == 0) *function = reinterpret_cast<void*>(&name);
  TIDEPOOL_DRIVER_FUNCTION(cuGetErrorName)
  TIDEPOOL_DRIVER_FUNCTION(cuGetErrorString)
  TIDEPOOL_DRIVER_FUNCTION(cuMemGetAllocationGranularity)
  TIDEPOOL_DRIVER_FUNCTION(cuMemAddressReserve)
  TIDEPOOL_DRIVER_FUNCTION(cuMemAddressFree)
  TIDEPOOL_DRIVER_FUNCTION(cuMemCreate)
  TIDEPOOL_DRIVER_FUNCTION(cuMemRelease)
  TIDEPOOL_DRIVER_FUNCTION(cuMemMap)
  TIDEPOOL_DRIVER_FUNCTION(cuMemUnmap)
  TIDEPOOL_DRIVER_FUNCTION(cuMemSetAccess)
#undef TIDEPOOL_DRIVER_FUNCTION
  if (result != nullptr) {
    *result =
        *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return *function != nullptr ? cudaSuccess : cudaErrorNotSupported;
}
