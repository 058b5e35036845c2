// What follows from a workspace's configuration, asked in many places.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CONFIG_RULES_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CONFIG_RULES_H_

#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

inline bool ServesFromPages(const WorkspaceConfig& config) {
  return config.debug_mode == DebugMode::kDisabled &&
         config.policy_allocation != AllocationPolicy::kAlways;
}

inline bool LearnsLifetimes(const WorkspaceConfig& config) {
  return config.policy_learning == LearningPolicy::kOptimized ||
         config.policy_learning == LearningPolicy::kTraining;
}

// Under max_size, what is alive counts, else the sum of the requests.
inline bool LimitsLive(const WorkspaceConfig& config) {
  return config.policy_spill == SpillPolicy::kReallocate && config.max_size > 0 &&
         LearnsLifetimes(config);
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CONFIG_RULES_H_
