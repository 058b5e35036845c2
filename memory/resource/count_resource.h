// Counts what passes: blocks and bytes, live, at most and ever, and refusals. Bytes are those asked
// for.
//
// Threads: as what it wraps; the numbers may be read from any thread, each for itself.
#ifndef TIDEPOOL_MEMORY_RESOURCE_COUNT_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_COUNT_RESOURCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class CountResource final : public ResourceWrapper {
 public:
  // Numbers of one moment, each for itself.
  struct Counts {
    int64_t live_blocks = 0;      // now
    int64_t live_bytes = 0;       // now
    int64_t peak_live_bytes = 0;  // the most there were at once
    int64_t granted_blocks = 0;   // ever
    int64_t granted_bytes = 0;    // ever
    int64_t refused_blocks = 0;   // ever; exceptions count too
  };

  explicit CountResource(MemoryResource& upstream) : ResourceWrapper(upstream) {}

  // As MemoryResource says; granted and refused by what it wraps.
  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  std::string Describe() const override { return "counted " + upstream().Describe(); }

  Counts counts() const;  // any thread

 private:
  std::atomic<int64_t> live_blocks_{0}, live_bytes_{0}, peak_live_bytes_{0};
  std::atomic<int64_t> granted_blocks_{0}, granted_bytes_{0}, refused_blocks_{0};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_COUNT_RESOURCE_H_
