#include "tidepool/memory/resource/provider_blocks.h"

#include <algorithm>
#include <bit>

#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {

Allocation ProviderBlocks::Allocate(size_t bytes, size_t alignment) {
  if (bytes > kMostBytes || !std::has_single_bit(alignment)) {
    return Allocation::Refused(Refusal::kImpossible, this, bytes);
  }
  std::byte* const data =
      provider_.Allocate(bytes, std::max(alignment, provider_.traits().alignment));
  if (data == nullptr) return Allocation::Refused(Refusal::kExhausted, this, bytes);
  MemoryTracker::Global().CountSystemAllocation();
  return {data, data};
}

void ProviderBlocks::Release(void* token, size_t bytes, size_t) noexcept {
  provider_.Release(static_cast<std::byte*>(token), bytes);
  MemoryTracker::Global().CountSystemRelease();
}

std::string ProviderBlocks::Describe() const { return "blocks of " + provider_.name(); }

}  // namespace tidepool
