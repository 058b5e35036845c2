// One thread at a time: makes what is for a single thread (a Pool) fit to be shared. The lock is
// held while what it wraps is asked, so nothing it asks may come back here.
//
// Threads: any.
#ifndef TIDEPOOL_MEMORY_RESOURCE_LOCKED_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_LOCKED_RESOURCE_H_

#include <cstddef>
#include <mutex>
#include <string>

#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class LockedResource final : public ResourceWrapper {
 public:
  explicit LockedResource(MemoryResource& upstream) : ResourceWrapper(upstream) {}

  Allocation Allocate(size_t bytes, size_t alignment) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return upstream().Allocate(bytes, alignment);
  }
  void Release(void* token, size_t bytes, size_t alignment) noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    upstream().Release(token, bytes, alignment);
  }
  size_t owned_bytes() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return upstream().owned_bytes();
  }
  size_t Trim() noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    return upstream().Trim();
  }
  size_t TrimIdle(int uses) noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    return upstream().TrimIdle(uses);
  }
  std::string Describe() const override { return upstream().Describe(); }

 private:
  mutable std::mutex mutex_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_LOCKED_RESOURCE_H_
