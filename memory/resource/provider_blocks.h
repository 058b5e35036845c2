// Single blocks of a device, each taken from its provider and given back to it. On the host:
// malloc. Nothing is charged or counted but the requests to the system.
//
// Threads: any. Cost: the provider's.
#ifndef TIDEPOOL_MEMORY_RESOURCE_PROVIDER_BLOCKS_H_
#define TIDEPOOL_MEMORY_RESOURCE_PROVIDER_BLOCKS_H_

#include <bit>
#include <cstddef>
#include <string>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/provider_calls.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class ProviderBlocks final : public MemoryResource {
 public:
  explicit ProviderBlocks(DeviceProvider& provider) : provider_(provider) {}

  Allocation Allocate(size_t bytes, size_t alignment) override {
    if (bytes > kMostBytes || !std::has_single_bit(alignment)) {
      return Allocation::Refused(Refusal::kImpossible, this, bytes);
    }
    // Before a block is taken that would be lost: the first use of the ledger makes it, and may throw.
    MemoryTracker& ledger = MemoryTracker::Global();
    std::byte* const data = AllocateAligned(provider_, bytes, alignment);
    if (data == nullptr) {
      provider_.ThrowIfLost("heap");
      return Allocation::Refused(Refusal::kExhausted, this, bytes);
    }
    ledger.CountSystemAllocation();
    return {data, data};
  }
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  Device device() const override { return provider_.device(); }
  std::string Describe() const override;

 private:
  DeviceProvider& provider_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_PROVIDER_BLOCKS_H_
