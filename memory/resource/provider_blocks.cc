#include "tidepool/memory/resource/provider_blocks.h"

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/device_queue.h"

namespace tidepool {

void ProviderBlocks::Release(void* token, size_t bytes, size_t) noexcept {
  // Nobody knows which queues have used it.
  auto* const data = static_cast<std::byte*>(token);
  const Device device = provider_.device();
  if (device != Host() && !provider_.NoteUsers(data, AllQueues(device)))
    ContinueHereAfterAll(device);
  provider_.Release(data, bytes);
  MemoryTracker::Global().CountSystemRelease();
}

std::string ProviderBlocks::Describe() const { return "blocks of " + ProviderName(provider_); }

}  // namespace tidepool
