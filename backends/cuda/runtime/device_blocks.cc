// Blocks of a device's memory pool, and what the pool keeps. Part of CudaDevice.
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool::cuda {

void CudaDevice::TrimPool() noexcept {
  if (capturing_) return;
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
  if (capturing_ || bytes > SIZE_MAX / 4) return nullptr;
  const size_t slack = alignment > kPoolAlignment ? alignment : 0;
  try {
    Activate();
    void* data = nullptr;
    const size_t whole = bytes + kReadableTailBytes + slack;
    cudaError_t error = cudaMallocFromPoolAsync(&data, whole, pool_, compute_);
    if (error == cudaErrorMemoryAllocation) {
      // Blocks given back may wait in the queue.
      cudaGetLastError();
      cudaStreamSynchronize(compute_);
      TrimPool();
      error = cudaMallocFromPoolAsync(&data, whole, pool_, compute_);
    }
    if (error != cudaSuccess) {
      cudaGetLastError();
      return nullptr;
    }
    CountKept();
    // The block exists from here on in the compute stream only.
    CopiesAfterCompute();
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

void CudaDevice::Release(std::byte* data, size_t) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  if (const auto it = shifted_.find(data); it != shifted_.end()) {
    data = it->second;
    shifted_.erase(it);
  }
  if (capturing_) {
    kept_.push_back(data);
    return;
  }
  lock.unlock();
  try {
    Activate();
    // Copies may still use it.
    ComputeAfterCopies();
  } catch (...) {  // the device is lost, and the memory with it
  }
  cudaFreeAsync(data, compute_);
  CountKept();
}

void CudaDevice::set_capturing(bool capturing) {
  std::vector<std::byte*> kept;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    capturing_ = capturing;
    if (!capturing) kept.swap(kept_);
  }
  for (std::byte* data : kept) Release(data, 0);
}

}  // namespace tidepool::cuda
