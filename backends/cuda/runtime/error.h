// Errors of the CUDA runtime as tidepool::Error.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_ERROR_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_ERROR_H_

#include <string>

#include "cuda_runtime_api.h"

namespace tidepool::cuda {

// "cudaMemcpyAsync: cudaErrorInvalidValue: invalid argument".
std::string Describe(cudaError_t error, const char* call);

// Of a call whose error is no error of the program's, as of a query that is answered with not-ready: the runtime does not
// tell it to whoever asks for the last error next.
inline void ForgetLastError(cudaError_t error) {
  if (error != cudaSuccess && cudaPeekAtLastError() == error) cudaGetLastError();
}

// Every call that uses the device fails from then on: a kernel used a wrong address, was stopped or trapped, or memory
// failed beyond correction.
bool IsSticky(cudaError_t error);

// Throws kInternal, for cudaErrorMemoryAllocation kResourceExhausted, with Describe() as message; where it is
// sticky the calling thread's current device is lost, and DeviceLostError says so (memory/provider/device_loss.h).
// The error is taken from the runtime: cudaGetLastError does not report it again.
[[noreturn]] void ThrowError(cudaError_t error, const char* call);

// After a library has failed without saying why: throws DeviceLostError where the current device is lost.
void ThrowIfCurrentIsLost(const char* call);

inline void Check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) ThrowError(error, call);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_ERROR_H_
