// Why the driver refused memory, where it was not lack of memory: an argument that it does not take, a call that it does not
// support, a device that has failed. Requests answer null or false whatever the reason; whoever was refused asks
// DeviceProvider::ThrowIfLost, which looks here.
//
// Threads: any; each knows its own last request's reason alone. Cost: a thread-local word.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_REFUSAL_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_REFUSAL_H_

#include <string>

#include "cuda.h"
#include "cuda_runtime_api.h"
#include "tidepool/memory/device.h"

namespace tidepool::cuda {

// A request begins, or was served after all.
void ForgetRefusal() noexcept;
// `call`: a literal. Lack of memory is no reason of its own: it forgets. Takes the error from the runtime, and tells the
// device's loss where it is sticky.
void NoteRefusal(Device device, cudaError_t error, const char* call) noexcept;
void NoteRefusal(Device device, CUresult error, const char* call) noexcept;
// Throws kInternal, "<who>: cuda:0: cuMemCreate: CUDA_ERROR_NOT_SUPPORTED: operation not supported", once for each refusal of
// that device that was noted.
void ThrowIfRefused(Device device, const std::string& who);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_REFUSAL_H_
