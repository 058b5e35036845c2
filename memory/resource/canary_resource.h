// Finds writes past the ends of blocks, on any device and in front of any resource: each block has
// a zone of a pattern on both sides, which is looked at when it is released. What was overwritten
// is told on stderr, and the process ends. Blocks are filled with 0xff bytes, NaNs, so that what is
// read before it is written shows. GuardPages stops the write itself, on the host.
//
// Touches the bytes, by the device's provider. Threads: as what it wraps. Cost: 128 bytes and more
// a block, two fills and two copies.
#ifndef TIDEPOOL_MEMORY_RESOURCE_CANARY_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_CANARY_RESOURCE_H_

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class CanaryResource final : public ResourceWrapper {
 public:
  static constexpr size_t kZoneBytes = kReadableTailBytes;

  // `provider`: of the memory that what it wraps has.
  CanaryResource(MemoryResource& upstream, DeviceProvider& provider)
      : ResourceWrapper(upstream), provider_(provider) {}

  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  size_t FootprintBytes(size_t bytes, size_t alignment) const override;
  std::string Describe() const override { return "watched " + upstream().Describe(); }

 private:
  static size_t Enlarged(size_t bytes, size_t alignment);
  void Check(const std::byte* data, size_t bytes, ptrdiff_t offset) noexcept;

  DeviceProvider& provider_;
  std::mutex mutex_;
  std::unordered_map<void*, std::byte*> data_of_;  // by token; guarded by mutex_
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_CANARY_RESOURCE_H_
