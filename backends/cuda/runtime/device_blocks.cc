// Blocks of a device's memory pool, and what the pool keeps. Part of CudaDevice.
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/device_queue.h"

namespace tidepool::cuda {

void CudaDevice::TrimPool() noexcept {
  if (capturing()) return;
  cudaMemPoolTrimTo(pool_, 0);
  CountKept();
}

// Blocks given back count as in use until their turn in the stream has come, so what is kept is on the
// ledger late rather than twice.
void CudaDevice::CountKept() noexcept {
  uint64_t reserved = 0, used = 0;
  // The other way round a block taken in between would count as kept.
  if (cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved) != cudaSuccess ||
      cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  const int64_t kept = reserved > used ? static_cast<int64_t>(reserved - used) : 0;
  std::lock_guard<std::mutex> lock(kept_mutex_);
  const int64_t change = kept - kept_counted_;
  if (change == 0) return;
  // The process's entry, which the ledger has: adding to it takes no memory.
  MemoryTracker::Global().Add(device_, MemoryKind::kUnreferenced, change);
  kept_counted_ = kept;
}

int64_t CudaDevice::kept_bytes() const {
  std::lock_guard<std::mutex> lock(kept_mutex_);
  return kept_counted_;
}

std::byte* CudaDevice::Allocate(size_t bytes, size_t alignment) noexcept {
  // Within a capture it would become a part of the graph.
  if (capturing() || bytes > SIZE_MAX / 4) return nullptr;
  const size_t slack = alignment > kPoolAlignment ? alignment : 0;
  try {
    Activate();
    void* data = nullptr;
    const size_t whole = bytes + kReadableTailBytes + slack;
    cudaStream_t const stream = compute(QueueHere(device_));
    cudaError_t error = cudaMallocFromPoolAsync(&data, whole, pool_, stream);
    if (error == cudaErrorMemoryAllocation) {
      // Blocks given back may wait in the queues.
      cudaGetLastError();
      FinishQueues();
      TrimPool();
      error = cudaMallocFromPoolAsync(&data, whole, pool_, stream);
    }
    if (error != cudaSuccess) {
      cudaGetLastError();
      return nullptr;
    }
    CountKept();
    auto* const block = static_cast<std::byte*>(data);
    if (slack == 0) return block;
    const uintptr_t address = reinterpret_cast<uintptr_t>(block);
    std::byte* const aligned = block + ((address + alignment - 1) / alignment * alignment - address);
    std::lock_guard<std::mutex> lock(mutex_);
    shifted_[aligned] = block;
    return aligned;
  } catch (...) {
    return nullptr;
  }
}

void CudaDevice::Release(std::byte* data, size_t bytes) noexcept {
  const std::byte* const block = data;
  std::unique_lock<std::mutex> lock(mutex_);
  if (capturing()) {
    kept_.push_back({data, bytes});
    return;
  }
  if (const auto it = shifted_.find(data); it != shifted_.end()) {
    data = it->second;
    shifted_.erase(it);
  }
  lock.unlock();
  const int queue = QueueHere(device_);
  try {
    Activate();
    AwaitCopiesOf(block, bytes, queue);
  } catch (...) {  // the device is lost, and the memory with it
  }
  cudaFreeAsync(data, compute(queue));
  CountKept();
}

void CudaDevice::set_capturing(int queue) {
  std::vector<Block> kept;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    capturing_ = queue;
    if (queue < 0) kept.swap(kept_);
  }
  for (const Block& block : kept) Release(block.data, block.bytes);
}

}  // namespace tidepool::cuda
