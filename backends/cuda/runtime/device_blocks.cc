// Blocks of a device's memory pool, and what the pool keeps. Part of CudaDevice.
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/backends/cuda/runtime/refusal.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"

namespace tidepool::cuda {

void CudaDevice::TrimPool(bool wait) noexcept {
  if (capturing()) return;
  if (wait) {
    blocks_->Trim();
  } else {
    blocks_->TrimUnused();
  }
  // Nothing in that stream waits for work.
  blocks_on_their_way_ = false;
  cudaStreamSynchronize(of_blocks_);
  cudaMemPoolTrimTo(pool_, 0);
  CountKept();
}

// Blocks given back count as in use until their turn in the stream has come, so without waiting for that what is
// kept is on the ledger late rather than twice.
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
  const auto of_blocks = static_cast<int64_t>(blocks_->stats().counted_bytes);
  std::lock_guard<std::mutex> lock(kept_mutex_);
  return kept_counted_ + of_blocks;
}

std::byte* CudaDevice::Allocate(size_t bytes, size_t alignment) noexcept {
  // Within a capture it would become a part of the graph, which may run when it is somebody else's.
  if (capturing()) return nullptr;
  ForgetRefusal();
  std::byte* const data = blocks_->Allocate(bytes, alignment);
  if (data != nullptr) ForgetRefusal();  // of a request on the way
  return data;
}

std::byte* CudaDevice::TakeBlock(size_t bytes, QueuePoint* from) noexcept {
  try {
    Activate();
    // What was given back counts as in use until its turn has come.
    if (blocks_on_their_way_.exchange(false)) cudaStreamSynchronize(of_blocks_);
    void* data = nullptr;
    cudaError_t error = cudaMallocFromPoolAsync(&data, bytes, pool_, of_blocks_);
    if (error == cudaErrorMemoryAllocation) {
      // What was given back is there when its turn in the stream has come.
      cudaGetLastError();
      cudaStreamSynchronize(of_blocks_);
      cudaMemPoolTrimTo(pool_, 0);
      error = cudaMallocFromPoolAsync(&data, bytes, pool_, of_blocks_);
    }
    if (error != cudaSuccess) {
      NoteRefusal(device_, error, "cudaMallocFromPoolAsync");
      return nullptr;
    }
    try {
      *from = points_.Record(of_blocks_);
    } catch (...) {
      // Without a point it must be there.
      cudaStreamSynchronize(of_blocks_);
    }
    CountKept();
    return static_cast<std::byte*>(data);
  } catch (...) {
    return nullptr;
  }
}

std::byte* CudaDevice::AllocateInStream(size_t bytes, cudaStream_t stream) noexcept {
  ForgetRefusal();
  try {
    Activate();
  } catch (...) {  // the device is lost
    return nullptr;
  }
  void* data = nullptr;
  cudaError_t error = cudaMallocFromPoolAsync(&data, bytes, pool_, stream);
  if (error == cudaErrorMemoryAllocation) {
    ForgetLastError(error);
    TrimPool(/*wait=*/true);
    error = cudaMallocFromPoolAsync(&data, bytes, pool_, stream);
  }
  if (error != cudaSuccess) {
    NoteRefusal(device_, error, "cudaMallocFromPoolAsync");
    return nullptr;
  }
  CountKept();
  return static_cast<std::byte*>(data);
}

void CudaDevice::ReleaseInStream(std::byte* data, cudaStream_t stream) noexcept {
  try {
    Activate();
  } catch (...) {  // the device is lost, and the memory with it
  }
  ForgetLastError(cudaFreeAsync(data, stream));
  CountKept();
}

void CudaDevice::GiveBlock(std::byte* data, size_t) noexcept {
  try {
    Activate();
  } catch (...) {  // the device is lost, and the memory with it
  }
  cudaFreeAsync(data, of_blocks_);
  blocks_on_their_way_ = true;
}

void CudaDevice::Release(std::byte* data, size_t bytes) noexcept {
  const Block block{data, bytes};
  ReleaseMany(&block, 1);
}

void CudaDevice::ReleaseMany(const Block* blocks, int count) noexcept {
  StreamCapture* const capture = newest_capture != nullptr ? StreamCapture::Of(*this) : nullptr;
  // Their end would be captured.
  if (capture != nullptr) return capture->Keep(blocks, count);
  blocks_->ReleaseMany(blocks, count);
}

}  // namespace tidepool::cuda
