#include "tidepool/memory/workspace/ring_channel.h"

#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/ring_core.h"

namespace tidepool::internal {

void ThrowEmptyLease() {
  ThrowInvalidArgument("ring channel: Push of an empty lease, expected one that keeps a slot");
}

void RingReaders::ComesBack() { core_->ComeBack(this); }

void RingReaders::Takes(const SlotLease& lease) noexcept { core_->Take(lease.slot_, this); }

}  // namespace tidepool::internal
