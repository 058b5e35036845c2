// The configurations and requests the numbered cases share. Alignment 16, as the byte counts assume.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CONFORMANCE_ND4J_CASES_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CONFORMANCE_ND4J_CASES_H_

#include <cstddef>
#include <vector>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool::nd4j {

inline constexpr size_t kMiB = size_t{1} << 20;

inline BufferHandle Bytes(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }
inline BufferHandle D(size_t count) { return Bytes(8 * count); }  // doubles
inline BufferHandle F(size_t count) { return Bytes(4 * count); }  // floats

inline WorkspaceConfig Aligned16() {
  WorkspaceConfig config = WorkspaceConfig::Nd4j();
  config.alignment = 16;
  return config;
}
inline WorkspaceConfig Strict(LearningPolicy learning, SpillPolicy spill = SpillPolicy::kExternal) {
  WorkspaceConfig config = Aligned16();
  config.policy_allocation = AllocationPolicy::kStrict;
  config.policy_learning = learning;
  config.policy_spill = spill;
  return config;
}
// initial = max = 10 MiB, kStrict, kFirstLoop, kExternal.
inline WorkspaceConfig Basic() {
  WorkspaceConfig config = Strict(LearningPolicy::kFirstLoop);
  config.initial_size = config.max_size = 10 * kMiB;
  return config;
}
// Unsized until Initialize().
inline WorkspaceConfig Over() {
  WorkspaceConfig config = Strict(LearningPolicy::kOverTime);
  config.max_size = 10 * kMiB;
  return config;
}
inline WorkspaceConfig First() {
  WorkspaceConfig config = Strict(LearningPolicy::kFirstLoop);
  config.max_size = 10 * kMiB;
  return config;
}

// One cycle with these requests, each held to its end.
inline void Cycle(Workspace& workspace, const std::vector<size_t>& requests) {
  WorkspaceScope scope(workspace);
  std::vector<BufferHandle> held;
  for (size_t bytes : requests) held.push_back(Bytes(bytes));
}
// The size after each of several cycles of one request.
inline std::vector<size_t> SizesAfter(Workspace& workspace, const std::vector<size_t>& cycles) {
  std::vector<size_t> sizes;
  for (size_t bytes : cycles) {
    Cycle(workspace, {bytes});
    sizes.push_back(workspace.size());
  }
  return sizes;
}

}  // namespace tidepool::nd4j

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CONFORMANCE_ND4J_CASES_H_
