// PyTorch on Tidepool's device memory: functions of C for torch.cuda.memory.CUDAPluggableAllocator.
//
//   import ctypes, torch
//   path = "bazel-bin/backends/cuda/torch/libtidepool_torch.so"
//   allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "tidepool_torch_malloc", "tidepool_torch_free")
//   torch.cuda.memory.change_current_allocator(allocator)     # before the first tensor on a device
//   tidepool = ctypes.CDLL(path)
//   tidepool.tidepool_set_device_limit(0, ctypes.c_int64(20 << 30))
//
// A block is had and given back in the order of PyTorch's stream, from the memory pool that Tidepool's arrays have their
// blocks from: nobody waits, and what either gives back the other may have. It is on the ledger (kind allocated) and counts
// in the budget of its device; where the device refuses, kept memory goes first, as for an array.
//
// Errors: as exceptions derived from std::exception, which PyTorch raises as RuntimeError: OutOfMemoryError's message,
// what the driver says, and in a stream that is being captured that it is (PyTorch's graphs need its own allocator). A
// caller that is not C++ must not let them come: it sets no limit and asks for what is there.
// The current device stays what it was. Threads: any. Cost: a lock and a driver call each.
#ifndef TIDEPOOL_BACKENDS_CUDA_TORCH_TORCH_ALLOCATOR_H_
#define TIDEPOOL_BACKENDS_CUDA_TORCH_TORCH_ALLOCATOR_H_

#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

// At a multiple of 256 bytes, or of 512 as the driver has it; null for 0 bytes.
void* tidepool_torch_malloc(size_t bytes, int device, cudaStream_t stream);
// What tidepool_torch_malloc returned, or null; `stream`: behind whose work it goes, that it was had in.
void tidepool_torch_free(void* data, size_t bytes, int device, cudaStream_t stream);

// Of a device: what is in use by whoever shares the library, arrays of Tidepool's in it; below 0: there is no such device.
int64_t tidepool_device_bytes(int device);
// From here on; below 0: none. False: there is no such device.
bool tidepool_set_device_limit(int device, int64_t bytes);
// The ledger as text; the calling thread's until its next call.
const char* tidepool_memory_report(void);

#ifdef __cplusplus
}
#endif

#endif  // TIDEPOOL_BACKENDS_CUDA_TORCH_TORCH_ALLOCATOR_H_
