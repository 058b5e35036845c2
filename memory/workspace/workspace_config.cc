#include "tidepool/memory/workspace/workspace_config.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr size_t kMostTempBlock = size_t{1} << 36;

}  // namespace

WorkspaceConfig WorkspaceConfig::Training() {
  WorkspaceConfig config;
  config.policy_learning = LearningPolicy::kOptimized;
  return config;
}

WorkspaceConfig WorkspaceConfig::Inference() { return WorkspaceConfig(); }

WorkspaceConfig WorkspaceConfig::Nd4j() {
  WorkspaceConfig config;
  config.policy_allocation = AllocationPolicy::kOverallocate;
  config.policy_learning = LearningPolicy::kFirstLoop;
  config.policy_spill = SpillPolicy::kExternal;
  return config;
}

WorkspaceConfig WorkspaceConfig::Ring(int slots) {
  WorkspaceConfig config = Training();
  config.policy_reset = ResetPolicy::kEndOfBufferReached;
  config.ring_slots = slots;
  return config;
}

WorkspaceConfig WorkspaceConfig::MappedFile(std::string path) {
  WorkspaceConfig config;
  config.policy_learning = LearningPolicy::kNone;
  config.policy_spill = SpillPolicy::kExternal;
  config.policy_location = LocationPolicy::kMmap;
  config.temp_file_path = std::move(path);
  return config;
}

std::vector<std::string> WorkspaceConfig::Reasons(Device device) const {
  std::vector<std::string> reasons;
  auto refuse = [&](bool wrong, auto&&... text) {
    if (wrong) reasons.push_back(absl::StrCat(text...));
  };
  if (!MayBeDevice(device)) reasons.push_back(DescribeNoSuchDevice(device));
  for (const auto& [name, size] : {std::pair<const char*, size_t>{"initial_size", initial_size},
                                   {"min_size", min_size},
                                   {"max_size", max_size},
                                   {"temp_block_size", temp_block_size},
                                   {"helper_min_size", helper_min_size}}) {
    // A negative number that was converted; no memory has so many bytes.
    refuse(size > PTRDIFF_MAX, name, " is ", static_cast<ptrdiff_t>(size), ", expected 0 or more");
  }
  // One that was converted from a number.
  const auto refuse_beyond = [&](const char* name, auto policy, auto last) {
    refuse(policy > last, name, " is ", static_cast<int>(policy), ", expected 0 to ",
           static_cast<int>(last));
  };
  refuse_beyond("policy_allocation", policy_allocation, AllocationPolicy::kAlways);
  refuse_beyond("policy_learning", policy_learning, LearningPolicy::kTraining);
  refuse_beyond("policy_mirroring", policy_mirroring, MirroringPolicy::kHostOnly);
  refuse_beyond("policy_spill", policy_spill, SpillPolicy::kExternal);
  refuse_beyond("policy_reset", policy_reset, ResetPolicy::kEndOfBufferReached);
  refuse_beyond("policy_location", policy_location, LocationPolicy::kMmap);
  refuse_beyond("workspace_mode", workspace_mode, WorkspaceMode::kNone);
  refuse_beyond("debug_mode", debug_mode, DebugMode::kGuard);
  refuse_beyond("policy_ring_full", policy_ring_full, RingFullPolicy::kSpill);
  refuse(!std::has_single_bit(alignment) || alignment < 16 || alignment > (size_t{1} << 21),
         "alignment is ", alignment, ", expected a power of two from 16 to 2097152");
  refuse(!overallocation_limit.IsValid(),
         "overallocation_limit is negative, not a number or a ratio of more than ",
         Overallocation::kMostRatio, "; found ", overallocation_limit.value());
  refuse(max_size > 0 && min_size > max_size, "min_size ", min_size, " exceeds max_size ",
         max_size);
  refuse(max_size > 0 && initial_size > max_size, "initial_size ", initial_size,
         " exceeds max_size ", max_size);
  refuse(cycles_before_initialization < 0, "cycles_before_initialization is ",
         cycles_before_initialization, ", expected 0 or more");
  refuse(!(plan_search_seconds >= 0 && plan_search_seconds <= 1e6), "plan_search_seconds is ",
         plan_search_seconds, ", expected 0 to 1000000");
  refuse(temp_block_size < 4096 ||
             (temp_block_size > kMostTempBlock && temp_block_size <= PTRDIFF_MAX),
         "temp_block_size is ", temp_block_size, ", expected 4096 to ", kMostTempBlock);
  refuse(policy_spill == SpillPolicy::kFail && initial_size == 0 &&
             policy_location == LocationPolicy::kRam && debug_mode == DebugMode::kDisabled &&
             workspace_mode != WorkspaceMode::kNone,
         "policy_spill kFail needs an initial_size: with 0 bytes every request would fail");
  refuse(policy_spill == SpillPolicy::kFail && initial_size > 0 && initial_size < alignment &&
             policy_location == LocationPolicy::kRam,
         "initial_size ", initial_size,
         " holds no request, of which each has a multiple of alignment ", alignment,
         ": with policy_spill kFail every one would fail");
  refuse(policy_spill == SpillPolicy::kFail && policy_allocation == AllocationPolicy::kAlways,
         "policy_allocation kAlways serves every request outside the pages, which policy_spill "
         "kFail forbids");
  refuse(workspace_mode == WorkspaceMode::kSeparate,
         "workspace_mode kSeparate is for networks, which make a workspace for each purpose: one "
         "alone "
         "has kEnabled, kSingle or kNone");
  const bool plans =
      policy_learning == LearningPolicy::kOptimized || policy_learning == LearningPolicy::kTraining;
  refuse(
      workspace_mode == WorkspaceMode::kSingle && plans,
      "workspace_mode kSingle lays requests one behind the other, which policy_learning kOptimized "
      "and kTraining do not: it needs kFirstLoop, kOverTime or kNone");
  refuse(workspace_mode == WorkspaceMode::kNone &&
             (debug_mode == DebugMode::kGuard || debug_mode == DebugMode::kSpillEverything),
         "workspace_mode kNone makes arrays on the heap, where debug_mode ",
         debug_mode == DebugMode::kGuard ? "kGuard" : "kSpillEverything", " would see none");
  refuse(cycles_before_initialization > 0 && policy_learning != LearningPolicy::kOverTime,
         "cycles_before_initialization ", cycles_before_initialization,
         " is for policy_learning kOverTime");
  const bool ring = policy_reset == ResetPolicy::kEndOfBufferReached;
  refuse(ring && (ring_slots < 1 || ring_slots > 1 << 16), "ring_slots is ", ring_slots,
         ", expected 1 to 65536 with policy_reset kEndOfBufferReached");
  refuse(!ring && ring_slots != 0, "ring_slots is ", ring_slots,
         ", which needs policy_reset kEndOfBufferReached");
  refuse(!ring && (policy_ring_full != RingFullPolicy::kWait || ring_max_temporary > 0 ||
                   ring_max_kept > 0),
         "policy_ring_full kSpill, ring_max_temporary and ring_max_kept need policy_reset "
         "kEndOfBufferReached");
  refuse(ring && ring_max_temporary > 0 && policy_ring_full != RingFullPolicy::kSpill,
         "ring_max_temporary ", ring_max_temporary, " needs policy_ring_full kSpill");
  refuse(ring_max_temporary < 0 || ring_max_kept < 0 || ring_stall_limit_ms < 0,
         "ring_max_temporary ", ring_max_temporary, ", ring_max_kept ", ring_max_kept,
         " or ring_stall_limit_ms ", ring_stall_limit_ms, " is negative");
  refuse(ring && policy_ring_full == RingFullPolicy::kSpill && policy_spill == SpillPolicy::kFail,
         "policy_ring_full kSpill opens slots outside the ring's pages, which policy_spill kFail "
         "forbids");
  const bool mapped = policy_location == LocationPolicy::kMmap;
  refuse(mapped && policy_learning != LearningPolicy::kNone,
         "policy_location kMmap needs policy_learning kNone: the file sets the size");
  refuse(mapped && policy_spill == SpillPolicy::kReallocate,
         "policy_location kMmap needs policy_spill kExternal or kFail: the file does not grow");
  refuse(!mapped && !temp_file_path.empty(), "temp_file_path is for policy_location kMmap");
  refuse(
      mapped && policy_reset != ResetPolicy::kBlockLeft,
      "policy_location kMmap needs policy_reset kBlockLeft: slots of a ring have no fixed place");
  refuse(mapped && temp_file_path.empty() && initial_size == 0,
         "policy_location kMmap without temp_file_path needs an initial_size");
  refuse(mapped && policy_allocation == AllocationPolicy::kAlways,
         "policy_allocation kAlways serves every request outside of the file");
  refuse(mapped && !temp_file_path.empty() &&
             (debug_mode != DebugMode::kDisabled || workspace_mode == WorkspaceMode::kNone),
         "debug_mode and workspace_mode kNone serve requests outside of the file, whose contents "
         "would not be seen");
  const bool device_memory = device != Host() && policy_mirroring != MirroringPolicy::kHostOnly;
  refuse(mapped && device_memory, "policy_location kMmap is host memory: on ", DeviceName(device),
         " it needs policy_mirroring kHostOnly");
  refuse(debug_mode == DebugMode::kGuard && device_memory,
         "debug_mode kGuard guards host memory: on ", DeviceName(device),
         " it needs policy_mirroring kHostOnly");
  return reasons;
}

void WorkspaceConfig::Validate(const std::string& id, Device device) const {
  const std::vector<std::string> reasons = Reasons(device);
  if (reasons.empty()) return;
  ThrowInvalidArgument(
      absl::StrCat("workspace [", id, "]: illegal configuration: ", absl::StrJoin(reasons, "; ")));
}

}  // namespace tidepool
