#include "tidepool/memory/workspace/workspace_config.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"

namespace tidepool {

WorkspaceConfig WorkspaceConfig::Training() {
  WorkspaceConfig config;
  config.policy_allocation = AllocationPolicy::kStrict;
  config.policy_learning = LearningPolicy::kOptimized;
  config.policy_spill = SpillPolicy::kReallocate;
  return config;
}

WorkspaceConfig WorkspaceConfig::Inference() { return Training(); }

WorkspaceConfig WorkspaceConfig::Ring(int slots) {
  WorkspaceConfig config = Training();
  config.policy_reset = ResetPolicy::kEndOfBufferReached;
  config.ring_slots = slots;
  return config;
}

std::vector<std::string> WorkspaceConfig::Reasons() const {
  std::vector<std::string> reasons;
  auto refuse = [&](bool wrong, auto&&... text) {
    if (wrong) reasons.push_back(absl::StrCat(text...));
  };
  refuse(!std::has_single_bit(alignment) || alignment < 16 || alignment > (size_t{1} << 21),
         "alignment is ", alignment, ", expected a power of two from 16 to 2097152");
  refuse(!overallocation_limit.IsValid(), "overallocation_limit is negative or not a number");
  refuse(max_size > 0 && min_size > max_size, "min_size ", min_size, " exceeds max_size ", max_size);
  refuse(max_size > 0 && initial_size > max_size, "initial_size ", initial_size,
         " exceeds max_size ", max_size);
  refuse(cycles_before_initialization < 0, "cycles_before_initialization is ",
         cycles_before_initialization, ", expected 0 or more");
  refuse(temp_block_size < 4096, "temp_block_size is ", temp_block_size, ", expected at least 4096");
  refuse(policy_spill == SpillPolicy::kFail && initial_size == 0 &&
             debug_mode == DebugMode::kDisabled && workspace_mode != WorkspaceMode::kNone,
         "policy_spill kFail needs an initial_size: with 0 bytes every request would fail");
  refuse(policy_spill == SpillPolicy::kFail && policy_allocation == AllocationPolicy::kAlways,
         "policy_allocation kAlways serves every request outside the pages, which policy_spill "
         "kFail forbids");
  const bool ring = policy_reset == ResetPolicy::kEndOfBufferReached;
  refuse(ring && (ring_slots < 1 || ring_slots > 1 << 16), "ring_slots is ", ring_slots,
         ", expected 1 to 65536 with policy_reset kEndOfBufferReached");
  refuse(!ring && ring_slots != 0, "ring_slots is ", ring_slots,
         ", which needs policy_reset kEndOfBufferReached");
  refuse(ring_max_temporary < 0 || ring_max_kept < 0 || ring_stall_limit_ms < 0,
         "ring_max_temporary ", ring_max_temporary, ", ring_max_kept ", ring_max_kept,
         " or ring_stall_limit_ms ", ring_stall_limit_ms, " is negative");
  refuse(ring && policy_ring_full == RingFullPolicy::kSpill && policy_spill == SpillPolicy::kFail,
         "policy_ring_full kSpill opens slots outside the ring's pages, which policy_spill kFail "
         "forbids");
  refuse(policy_location == LocationPolicy::kMmap,
         "policy_location kMmap is not built yet; use kRam");
  return reasons;
}

void WorkspaceConfig::Validate(const std::string& id) const {
  const std::vector<std::string> reasons = Reasons();
  if (reasons.empty()) return;
  ThrowInvalidArgument(
      absl::StrCat("workspace [", id, "]: illegal configuration: ", absl::StrJoin(reasons, "; ")));
}

}  // namespace tidepool
