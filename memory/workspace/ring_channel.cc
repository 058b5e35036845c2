#include "tidepool/memory/workspace/ring_channel.h"

#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/ring_core.h"

namespace tidepool::internal {

void ThrowEmptyLease() {
  ThrowInvalidArgument("ring channel: Push of an empty lease, expected one that keeps a slot");
}

void RingReaders::ComesBack() { core_->ComeBack(this); }

std::chrono::milliseconds RingReaders::stall_limit() const {
  return std::chrono::milliseconds(core_->config.ring_stall_limit_ms);
}

uint64_t RingReaders::Stuck() const { return core_->StuckForReaders(); }

void RingReaders::ThrowIfStillStuck(uint64_t stuck) const {
  core_->ThrowIfStillStuckForReaders(stuck);
}

void RingReaders::Takes(const SlotLease& lease) noexcept { core_->Take(lease.slot_, this); }

}  // namespace tidepool::internal
