// Blocks without records beside the buffers of a workspace (cycle_memory.h): within its policies,
// and what is found when they outlive their cycle.
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

// Whatever lies beside the pages counts against the same limits as what lies in them: blocks, and
// arrays outside.
void WorkspaceCore::CheckTogether(size_t bytes, const char* what) {
  if (!limits_together_) return;
  const bool fails = config.policy_spill == SpillPolicy::kFail;
  const size_t most = fails ? pages_.capacity() : config.max_size;
  const auto fits = [&] {
    return bytes <= most && static_cast<size_t>(account_.used_bytes()) <= most - bytes;
  };
  if (fits()) return;
  if (block_memory() != nullptr) block_memory()->GiveUnused();
  if (fits()) return;
  const auto used = static_cast<size_t>(account_.used_bytes());
  ThrowOutOfMemory(
      {memory_device_, &memory_owner, static_cast<int64_t>(bytes), what},
      fails ? "policy_spill kFail" : "max_size",
      fails
          ? absl::StrCat("workspace [", id, "] is full: memory for ", what, " of ", bytes,
                         " bytes, ", used, " of ", most, " bytes in use, ", block_bytes_,
                         " of them by blocks, policy_spill kFail")
          : absl::StrCat("workspace [", id, "]: memory for ", what, " of ", bytes,
                         " bytes: the cycle needs ", used + bytes, " bytes at once, ", block_bytes_,
                         " of them for blocks, max_size is ", most, ", policy_spill kReallocate"),
      MemoryTracker::Global().Snapshot().ToString());
}

void WorkspaceCore::NoteBlocks(int64_t bytes) noexcept {
  block_bytes_ += bytes;
  WatchLimit();
}

// Whoever is asked for memory gives it back when its cycle ends, but not to itself: it would begin each cycle without any.
bool WorkspaceCore::AsksForItself() noexcept {
  return gate_.is_open_on(CurrentThreadToken()) && block_memory() != nullptr &&
         block_memory()->AsksForItself();
}

void WorkspaceCore::EndBlocks(CycleMemory& blocks, bool failed) noexcept {
  const CycleMemory::Left left = blocks.EndCycle();
  if (left.blocks == 0) return;
  counters.leaked_blocks += static_cast<uint64_t>(left.blocks);
  // As of arrays: what the failed cycle's exception takes along is no mistake.
  if (!failed) findings_.LeaksBlocks(left.blocks, left.bytes);
}

// Whoever was asked for memory may have called somebody who took blocks of this cycle.
void WorkspaceCore::CheckSpilled(const Allocation& spill, size_t bytes, size_t rounded) {
  if (!watches_limit_) return;
  try {
    CheckTogether(rounded, "an array");
  } catch (...) {
    spills_.Release(spill.token, bytes, rounded);
    throw;
  }
}

}  // namespace tidepool
