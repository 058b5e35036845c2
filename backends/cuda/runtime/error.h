// Errors of the CUDA runtime as tidepool::Error.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_ERROR_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_ERROR_H_

#include <string>

#include "cuda_runtime_api.h"

namespace tidepool::cuda {

// "cudaMemcpyAsync: cudaErrorInvalidValue: invalid argument".
std::string Describe(cudaError_t error, const char* call);

// Throws kInternal, for cudaErrorMemoryAllocation kResourceExhausted, with Describe() as message. The
// error is taken from the runtime: cudaGetLastError does not report it again.
[[noreturn]] void ThrowError(cudaError_t error, const char* call);

inline void Check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) ThrowError(error, call);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_ERROR_H_
