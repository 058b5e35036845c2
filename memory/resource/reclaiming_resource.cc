#include "tidepool/memory/resource/reclaiming_resource.h"

namespace tidepool {

Allocation ReclaimingResource::Retry(const Allocation& refused, size_t bytes, size_t alignment) {
  Allocation block = refused;
  Reclaimer& reclaimer = reclaimer_ != nullptr ? *reclaimer_ : Reclaimer::Global();
  const int64_t reclaimed = reclaimer.RetryWhileReclaiming(
      refused.missing_bytes,
      [&] {
        block = upstream().Allocate(bytes, alignment);
        return block || block.refusal == Refusal::kImpossible ? 0 : block.missing_bytes;
      },
      {device(), nullptr, static_cast<int64_t>(bytes), "a block"});
  if (!block) block.reclaimed_bytes += reclaimed;
  return block;
}

}  // namespace tidepool
