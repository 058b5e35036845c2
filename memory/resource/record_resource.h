// Writes down what passes, so that it can be played again on any other resource: a policy is judged
// by what a real program did.
//
//   RecordResource recorded(blocks);
//   ...
//   ReplayRequests(recorded.requests(), pool);
//
// Threads: as what it wraps; requests of several threads are in the order in which they were
// answered. Cost: a lock and about 150 bytes a block, kept until Clear().
#ifndef TIDEPOOL_MEMORY_RESOURCE_RECORD_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_RECORD_RESOURCE_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

struct RecordedRequest {
  enum class What : uint8_t { kGranted, kRefused, kReleased };
  What what;
  uint32_t
      block;  // number of the granted request; of a release: whose it was. Unused when refused.
  size_t bytes;
  size_t alignment;
};

class RecordResource final : public ResourceWrapper {
 public:
  explicit RecordResource(MemoryResource& upstream) : ResourceWrapper(upstream) {}

  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  std::string Describe() const override { return "recorded " + upstream().Describe(); }

  std::vector<RecordedRequest> requests() const;
  // Forgets all. Blocks from before are released without being written down.
  void Clear();

 private:
  mutable std::mutex mutex_;
  std::vector<RecordedRequest> requests_;
  std::unordered_map<void*, uint32_t> live_;  // token to number
  uint32_t blocks_ = 0;
};

// Makes the granted requests and the releases again, in order, on one thread; what is live in the
// end is released. Returns how many requests were refused this time; their releases are left out.
int64_t ReplayRequests(const std::vector<RecordedRequest>& requests, MemoryResource& resource);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_RECORD_RESOURCE_H_
