#include "tidepool/backends/cuda/runtime/error.h"

#include "tidepool/memory/error.h"

namespace tidepool::cuda {

std::string Describe(cudaError_t error, const char* call) {
  return std::string(call) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
}

void ThrowError(cudaError_t error, const char* call) {
  if (cudaPeekAtLastError() == error) cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) ThrowResourceExhausted(Describe(error, call));
  ThrowInternal(Describe(error, call));
}

}  // namespace tidepool::cuda
