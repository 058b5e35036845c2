// How much of a device's memory is in use, by whichever process, asked without a context on it.
//
// A context is hundreds of MiB, and the runtime's own question (cudaMemGetInfo) makes one: what it took is seen only from
// outside. The driver's management library is asked, which comes with every driver and is found at run time.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_DEVICE_USAGE_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_DEVICE_USAGE_H_

#include <cstdint>

namespace tidepool::cuda {

// -1: unknown, as without the library or on a part of a device (MIG) whose whole may not be asked. Threads: any. Cost: the
// first call starts the library (milliseconds).
int64_t UsedBytesOfDevice(int index) noexcept;

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_DEVICE_USAGE_H_
