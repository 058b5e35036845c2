// What a WorkspaceCore does as a slot of a ring: its cycle begins on one thread, is handed over, and
// ends on whichever thread releases the last lease.
//
// While leased, owner_ is the address of leased_token_, which no thread can match. Buffers that come
// back meanwhile are taken under leased_mutex_, so that the ledger and the kept blocks are right at
// once; EndLease takes the same lock. Whoever holds a buffer of the slot keeps the core alive, so
// the lock is taken before the buffer is given up, never after.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

void WorkspaceCore::PrepareSlot(uint64_t generation) noexcept {
  // Generations are the ring's: the next cycle's stamp is 2 * generation - 1.
  stamp_.store(2 * generation - 2, std::memory_order_relaxed);
}

void WorkspaceCore::AdoptLearned(size_t bytes, const LearnedCycle* learned) {
  auto copy = learned != nullptr ? std::make_unique<LearnedCycle>(*learned) : nullptr;
  ForgetPlans();
  if (bytes != size) {
    // Blocks of the learning batch are given back first, so that both are never held at once.
    TrimPool();
    ResizePages(bytes);
    PrefaultPages(bytes);
  }
  if (copy == nullptr) return;
  learned_ = plans_.Add(std::move(copy));
  plan_ = &learned_->plan;
  PlansChanged();
}

void WorkspaceCore::HandOver() noexcept {
  handing_over_ = false;
  DrainRemote();
  Settle();
  // What is alive now is the batch: when its readers let go of it teaches nothing.
  if (recording_) {
    for (uint32_t slot = 0; slot < slot_count_; ++slot) {
      if (slots_[slot] != nullptr) record_[slot].upper = slot_count_;
    }
    recording_ = false;
  }
  owner_.store(&leased_token_, std::memory_order_release);
}

void WorkspaceCore::EndLease() noexcept {
  std::lock_guard<std::mutex> lock(leased_mutex_);
  EndCycle(/*failed=*/false);
}

bool WorkspaceCore::ReleaseLeased(Buffer* buffer) noexcept {
  if (!is_open_on(&leased_token_)) return false;
  std::lock_guard<std::mutex> lock(leased_mutex_);
  if (owner_.load(std::memory_order_acquire) != &leased_token_) return false;
  DrainRemote();
  ReleaseOnOwner(buffer);
  return true;
}

void WorkspaceCore::CloseLeased(Buffer* buffer) noexcept {
  if (!is_open_on(&leased_token_)) return;
  std::lock_guard<std::mutex> lock(leased_mutex_);
  if (owner_.load(std::memory_order_acquire) == &leased_token_ && IsOut(buffer)) GiveBack(buffer);
}

std::string WorkspaceCore::DescribeStaleSlot(uint64_t now, uint64_t made) const {
  const std::string what = absl::StrCat("workspace pointer from workspace [", id,
                                        "] (made in generation ", made, "; ");
  if (now % 2 == 0) {
    return absl::StrCat("leaked ", what, "its ring slot was released; the slot is free after ",
                        "generation ", now / 2, ")");
  }
  return absl::StrCat("outdated ", what, "its ring slot was released; the slot is in generation ",
                      (now + 1) / 2, ")");
}

}  // namespace tidepool
