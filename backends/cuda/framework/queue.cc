#include "tidepool/backends/cuda/framework/queue.h"

#include <algorithm>

#include "tidepool/backends/cuda/runtime/cuda_device.h"

namespace tidepool::cuda {
namespace {

constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kWaves = 4;  // more blocks than fit at once even out their ends

}  // namespace

unsigned Queue::Blocks(int64_t threads, int threads_per_block) const {
  const int64_t most =
      int64_t{multiprocessors} * (kThreadsPerMultiprocessor / threads_per_block) * kWaves;
  return static_cast<unsigned>(
      std::clamp<int64_t>((threads + threads_per_block - 1) / threads_per_block, 1, most));
}

Queue QueueOf(const KernelCall& call) {
  CudaDevice& device = *CudaDevice::Find(call.device.index);
  device.Activate();
  return {device.compute(call.queue), device.index(), call.queue, device.multiprocessors()};
}

}  // namespace tidepool::cuda
