// At most so many bytes of blocks at once, footprints of what it wraps included. What is beyond is
// refused without asking. The limit is no promise that there is so much, and knows nothing of what
// others take.
//
// Threads: as what it wraps; the limit holds under contention.
#ifndef TIDEPOOL_MEMORY_RESOURCE_LIMIT_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_LIMIT_RESOURCE_H_

#include <atomic>
#include <cstddef>
#include <string>

#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class LimitResource final : public ResourceWrapper {
 public:
  // At most `limit_bytes` at once.
  LimitResource(MemoryResource& upstream, size_t limit_bytes)
      : ResourceWrapper(upstream), limit_bytes_(limit_bytes) {}

  // As MemoryResource says. What does not fit beside live blocks is kOverLimit, what is larger than
  // the limit kImpossible.
  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  std::string Describe() const override;

  // The limit, and what live blocks take of it.
  size_t limit_bytes() const { return limit_bytes_; }
  size_t taken_bytes() const { return taken_.load(std::memory_order_relaxed); }

 private:
  const size_t limit_bytes_;
  std::atomic<size_t> taken_{0};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_LIMIT_RESOURCE_H_
