// What a WorkspaceCore does as a slot of a ring: its cycle begins on one thread, is handed over, and
// ends on whichever thread releases the last lease.
//
// While it is leased no thread has it open. Buffers that come back meanwhile are taken under
// the lock of leased_side.h, so that the ledger and the kept blocks are right at once; EndLease takes the same.
// Whoever holds a buffer of the slot keeps the core alive, so the lock is taken before the buffer is
// given up, never after.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

WorkspaceCore* WorkspaceCore::NewRingSlot(std::string id, WorkspaceConfig config, Device device,
                                          const std::string& name,
                                          std::function<bool()> may_reclaim) {
  WorkspaceCore* const core = New(std::move(id), std::move(config), device);
  core->is_ring_slot_ = true;
  try {
    core->reclaimer_ = Reclaimer::Global().Register(
        name, [core, may_reclaim = std::move(may_reclaim)](ReclaimDepth depth) -> int64_t {
          return may_reclaim() ? core->Reclaim(depth) : 0;
        });
  } catch (...) {
    core->Abandon();
    throw;
  }
  return core;
}

void WorkspaceCore::GiveBackLearned() {
  const Maintenance maintenance(*this, "Trim");
  DrainReturned();
  follower_.Forget();
  if (pages_.size() > pages_.initial_bytes()) pages_.Shrink(pages_.initial_bytes());
  TrimState();
}

void WorkspaceCore::HandOver() noexcept {
  hands_over_ = false;
  DrainReturned();
  Settle();
  // What is alive now is the batch: when its readers let go of it teaches nothing.
  if (writes_down_) follower_.WriteDown(made());
  follower_.Finish(made());
  queues_.HandOver();
  gate_.HandOver();
}

void WorkspaceCore::EndLease() noexcept {
  leased_.End([this] {
    FinishCycle(/*failed=*/false);
    gate_.Report(CurrentThreadToken());  // from here on it is not leased
  });
  LeaveCycle();
}

// Takes a buffer back while the slot is leased; false when it is not.
bool WorkspaceCore::ReleaseLeased(Buffer* buffer) noexcept {
  return leased_.WhileLeased(gate_, [&] {
    DrainReturned();
    ReleaseOnOwner(buffer);
  });
}

void WorkspaceCore::CloseLeased(Buffer* buffer) noexcept {
  leased_.WhileLeased(gate_, [&] {
    if (IsOut(buffer)) GiveBack(buffer);
  });
}

std::string WorkspaceCore::DescribeStaleSlot(uint64_t now, uint64_t made) const {
  const std::string what =
      absl::StrCat("workspace pointer from workspace [", id, "] (made in generation ", made, "; ");
  if (now % 2 == 0) {
    return absl::StrCat("leaked ", what, "its ring slot was released; the slot is free after ",
                        "generation ", now / 2, ")");
  }
  return absl::StrCat("outdated ", what, "its ring slot was released; the slot is in generation ",
                      (now + 1) / 2, ")");
}

}  // namespace tidepool
