// Where a kernel's work goes.
#ifndef TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_QUEUE_H_
#define TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_QUEUE_H_

#include <cstdint>

#include "cuda_runtime_api.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cuda {

struct Queue {
  cudaStream_t stream = nullptr;
  int device = 0;
  int number = 0;  // of the device's compute queues
  int multiprocessors = 1;

  // Blocks that keep the device busy, for kernels that loop over `threads` pieces of work.
  unsigned Blocks(int64_t threads, int threads_per_block) const;
};

// The call's, of its device, which becomes the thread's current one.
Queue QueueOf(const KernelCall& call);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_QUEUE_H_
