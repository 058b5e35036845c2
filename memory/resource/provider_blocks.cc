#include "tidepool/memory/resource/provider_blocks.h"

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/device_queue.h"

namespace tidepool {

void ProviderBlocks::Release(void* token, size_t bytes, size_t) noexcept {
  ContinueHereAfterAll(provider_.device());
  provider_.Release(static_cast<std::byte*>(token), bytes);
  MemoryTracker::Global().CountSystemRelease();
}

std::string ProviderBlocks::Describe() const { return "blocks of " + provider_.name(); }

}  // namespace tidepool
