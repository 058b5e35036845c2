#include "tidepool/ndarray/gradient/spare_chunks.h"

#include <array>
#include <bit>
#include <cstdint>
#include <mutex>
#include <utility>

#include "tidepool/memory/accounting/reclaimer.h"

namespace tidepool {
namespace {

constexpr size_t kSizes = std::countr_zero(kLargestChunk) - std::countr_zero(kFirstChunk) + 1;

constexpr bool Waits(size_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kFirstChunk && bytes <= kLargestChunk;
}

// Who finds the lock taken takes a new chunk, or gives its own back: a child of fork() may find it taken for ever.
class SpareChunks {
 public:
  // Never destroyed: tapes of static storage end behind it. Throws std::bad_alloc.
  static SpareChunks& Global() {
    static SpareChunks& chunks = *new SpareChunks;
    return chunks;
  }

  BufferHandle Take(size_t bytes) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return {};
    Size& size = SizeOf(bytes);
    return size.count > 0 ? std::move(size.chunks[--size.count]) : BufferHandle();
  }
  // False: it stays the caller's.
  bool Leave(BufferHandle& chunk) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    Size& size = SizeOf(chunk->bytes);
    if (size.count == kMostOfASize) return false;
    size.chunks[size.count++] = std::move(chunk);
    return true;
  }

 private:
  struct Size {
    std::array<BufferHandle, kMostOfASize> chunks;
    size_t count = 0;
  };

  SpareChunks()
      : reclaimer_(Reclaimer::Global().Register("chunks of tapes that ended",
                                                [this](ReclaimDepth depth) -> int64_t {
                                                  return depth == ReclaimDepth::kSpare ? 0 : Trim();
                                                })) {}

  int64_t Trim() {
    int64_t bytes = 0;
    for (size_t size = kFirstChunk; size <= kLargestChunk; size *= 2) {
      while (Take(size)) bytes += static_cast<int64_t>(size);
    }
    return bytes;
  }
  Size& SizeOf(size_t bytes) {
    return sizes_[static_cast<size_t>(std::countr_zero(bytes) - std::countr_zero(kFirstChunk))];
  }

  std::mutex mutex_;
  std::array<Size, kSizes> sizes_;
  const Reclaimer::Registration reclaimer_;
};

}  // namespace

BufferHandle TakeSpareChunk(size_t bytes) noexcept try {
  return Waits(bytes) ? SpareChunks::Global().Take(bytes) : BufferHandle();
} catch (...) {  // there is no memory for the list of them
  return {};
}

void LeaveSpareChunk(BufferHandle chunk) noexcept try {
  if (Waits(chunk->bytes)) SpareChunks::Global().Leave(chunk);
} catch (...) {  // likewise
}

}  // namespace tidepool
