// Blocks without records beside the buffers of a workspace (cycle_memory.h): within its policies,
// and what is found when they outlive their cycle.
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

// Whatever lies beside the pages counts against the same limits as what lies in them.
void WorkspaceCore::CheckBlockBytes(size_t bytes) const {
  const auto used = static_cast<size_t>(account_.used_bytes());
  const bool fails =
      config.policy_spill == SpillPolicy::kFail && config.debug_mode == DebugMode::kDisabled;
  const bool bounded = config.policy_spill == SpillPolicy::kReallocate && config.max_size > 0;
  if (!fails && !bounded) return;
  const size_t most = fails ? pages_.capacity() : config.max_size;
  if (bytes <= most && used <= most - bytes) return;
  ThrowOutOfMemory(
      {memory_device_, &memory_owner, static_cast<int64_t>(bytes), "blocks"},
      fails ? "policy_spill kFail" : "max_size",
      fails ? absl::StrCat("workspace [", id, "] is full: memory for blocks of ", bytes, " bytes, ",
                           used, " of ", most, " bytes in use, policy_spill kFail")
            : absl::StrCat("workspace [", id, "]: memory for blocks of ", bytes,
                           " bytes: the cycle needs ", used + bytes, " bytes at once, max_size is ",
                           most, ", policy_spill kReallocate"),
      MemoryTracker::Global().Snapshot().ToString());
}

void WorkspaceCore::EndBlocks(bool failed) noexcept {
  CycleMemory* const blocks = block_memory();
  if (blocks == nullptr) return;
  const CycleMemory::Left left = blocks->EndCycle();
  if (left.blocks == 0) return;
  counters.leaked_blocks += static_cast<uint64_t>(left.blocks);
  // As of arrays: what the failed cycle's exception takes along is no mistake.
  if (!failed) findings_.LeaksBlocks(left.blocks, left.bytes);
}

}  // namespace tidepool
