// Requests that the pages do not serve: what is refused, and what is learned of that.
#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/pool_state.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

Allocation WorkspaceCore::AllocateOutside(size_t bytes, size_t rounded) {
  try {
    CheckMaySpill(rounded);
    MakeHolesFor(rounded);
    const Allocation spill = spills_.Allocate(bytes, rounded);
    CheckSpilled(spill, bytes, rounded);
    return spill;
  } catch (const OutOfMemoryError&) {
    NoteRefused(rounded);
    throw;
  }
}

void WorkspaceCore::NoteRefused(size_t rounded) noexcept {
  if (!uses_ranges_ || is_ring_slot_ || findings_.tracing()) return;
  // What it may own in all: what it has, and what limits leave, where there are any.
  size_t room = pages_.capacity();
  if (config.policy_spill != SpillPolicy::kFail) {
    room = pool_ != nullptr ? pool_->memory.usage_in_passing().held_bytes
                            : static_cast<size_t>(owned_.bytes()) - counters.block_bytes;
    if (const size_t left = RoomUnderLimits(); left != SIZE_MAX) room += left;
  }
  refused_request_.Note(made(), rounded, room);
}

// Under kReallocate a cycle may not need more than max_size: what is alive at once was looked at where
// lifetimes are learned, else it is the sum of its requests.
void WorkspaceCore::CheckMaySpill(size_t bytes) {
  if (config.policy_spill == SpillPolicy::kFail && config.debug_mode == DebugMode::kDisabled) {
    const size_t capacity = pages_.capacity();
    // Requests one behind the other take what was released in the cycle as well.
    const auto arrays = static_cast<size_t>(account_.used_bytes() - block_bytes_);
    const size_t free = capacity - (uses_ranges_ ? arrays : counters.cursor.get());
    ThrowOutOfMemory(
        {memory_device_, &memory_owner, static_cast<int64_t>(bytes), "an array"},
        "policy_spill kFail",
        absl::StrCat("workspace [", id, "] is full: request of ", bytes, " bytes, ", free, " of ",
                     capacity, " bytes free",
                     uses_ranges_ ? absl::StrCat(", ", LargestGap(), " of them in one piece")
                                  : std::string(),
                     ", policy_spill kFail"),
        MemoryTracker::Global().Snapshot().ToString());
  }
  if (config.policy_spill != SpillPolicy::kReallocate || config.max_size == 0 || limits_live_)
    return;
  const size_t before = counters.bytes_this_cycle + static_cast<size_t>(block_bytes_);
  if (bytes <= config.max_size && before <= config.max_size - bytes) return;
  ThrowOutOfMemory({memory_device_, &memory_owner, static_cast<int64_t>(bytes), "an array"},
                   "max_size",
                   absl::StrCat("workspace [", id, "]: a request of ", bytes,
                                " bytes: the cycle needs ", before + bytes, " bytes, max_size is ",
                                config.max_size, ", policy_spill kReallocate"),
                   MemoryTracker::Global().Snapshot().ToString());
}

}  // namespace tidepool
