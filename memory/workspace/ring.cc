#include "tidepool/memory/workspace/ring.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/ring_census.h"
#include "tidepool/memory/workspace/ring_core.h"

namespace tidepool {

// ---- SlotLease ------------------------------------------------------------------------------

SlotLease::SlotLease(const SlotLease& other) noexcept : slot_(other.slot_) {
  if (slot_ != nullptr) slot_->leases.Add();
}

void SlotLease::Release() noexcept {
  RingSlot* slot = std::exchange(slot_, nullptr);
  if (slot != nullptr && slot->leases.Leave()) slot->ring().EndLease(slot);
}

uint64_t SlotLease::generation() const { return slot_ != nullptr ? slot_->generation() : 0; }

void SlotLease::Keep(std::string_view tag) {
  if (slot_ == nullptr) ThrowFailedPrecondition("ring lease: Keep on an empty lease");
  slot_->ring().Keep(slot_, tag);
}

// ---- RingWorkspace --------------------------------------------------------------------------

RingWorkspace::RingWorkspace(std::string id, WorkspaceConfig config, Device device)
    : core_(RingCore::New(std::move(id), std::move(config), device)) {
  try {
    internal::JoinCensus(core_);
  } catch (...) {
    core_->Abandon();
    throw;
  }
}

RingWorkspace::~RingWorkspace() {
  internal::LeaveCensus(core_);
  core_->Abandon();
}

const std::string& RingWorkspace::id() const { return core_->id; }
const WorkspaceConfig& RingWorkspace::config() const { return core_->config; }
Device RingWorkspace::device() const { return core_->device; }
int RingWorkspace::slots() const { return core_->config.ring_slots; }
size_t RingWorkspace::slot_size() const { return core_->stats().slot_bytes; }
uint64_t RingWorkspace::generation() const { return core_->generation(); }
RingStats RingWorkspace::stats() const { return core_->stats(); }
std::string RingWorkspace::Dump() const { return core_->Dump(); }
void RingWorkspace::Initialize() { core_->Initialize(); }
void RingWorkspace::Trim() { core_->Trim(); }
void RingWorkspace::Destroy() { core_->Destroy(); }

// ---- RingSlotScope --------------------------------------------------------------------------

RingSlotScope::RingSlotScope(RingSlot* slot) : slot_(slot), generation_(slot->generation()) {
  slot->ring().Enter(slot, &token_);
}

RingSlotScope::RingSlotScope(RingWorkspace& ring)
    : RingSlotScope(ring.core()->Acquire(RingCore::Full::kWait, std::stop_token())) {}

std::optional<RingSlotScope> RingSlotScope::Open(RingWorkspace& ring, const std::stop_token& stop) {
  if (stop.stop_requested()) return std::nullopt;
  RingSlot* slot = ring.core()->Acquire(RingCore::Full::kWait, stop);
  if (slot == nullptr) return std::nullopt;
  return RingSlotScope(slot);
}

std::optional<RingSlotScope> RingSlotScope::TryOpen(RingWorkspace& ring) {
  RingSlot* slot = ring.core()->Acquire(RingCore::Full::kRefuse, std::stop_token());
  if (slot == nullptr) return std::nullopt;
  return RingSlotScope(slot);
}

RingSlotScope::~RingSlotScope() {
  if (slot_ == nullptr) return;
  // Else its own thread ends it and returns the slot.
  if (token_.Reset()) slot_->ring().Return(slot_);
}

SlotLease RingSlotScope::Commit(std::string_view tag) {
  if (slot_ == nullptr) ThrowFailedPrecondition("ring slot: was committed or discarded before");
  token_.CheckMayClose();
  slot_->ring().Commit(slot_, tag, &token_);
  return SlotLease(std::exchange(slot_, nullptr));
}

void RingSlotScope::Discard() {
  if (slot_ == nullptr) ThrowFailedPrecondition("ring slot: was committed or discarded before");
  token_.Close();
  RingSlot* slot = std::exchange(slot_, nullptr);
  slot->ring().Return(slot);
}

}  // namespace tidepool
