// Single blocks of a device, each taken from its provider and given back to it. On the host:
// malloc. Nothing is charged or counted but the requests to the system.
//
// Threads: any. Cost: the provider's.
#ifndef TIDEPOOL_MEMORY_RESOURCE_PROVIDER_BLOCKS_H_
#define TIDEPOOL_MEMORY_RESOURCE_PROVIDER_BLOCKS_H_

#include <cstddef>
#include <string>

#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class ProviderBlocks final : public MemoryResource {
 public:
  explicit ProviderBlocks(DeviceProvider& provider) : provider_(provider) {}

  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  Device device() const override { return provider_.device(); }
  std::string Describe() const override;

 private:
  DeviceProvider& provider_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_PROVIDER_BLOCKS_H_
