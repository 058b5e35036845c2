// LayerWorkspaceManager: what a network's workspaces are configured by.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/layer_workspace_manager.h"

namespace tidepool::nn {
namespace {

const char* ModeName(WorkspaceMode mode) {
  switch (mode) {
    case WorkspaceMode::kEnabled:
      return "kEnabled";
    case WorkspaceMode::kSingle:
      return "kSingle";
    case WorkspaceMode::kSeparate:
      return "kSeparate";
    case WorkspaceMode::kNone:
      return "kNone";
  }
  return "";
}

}  // namespace

WorkspaceConfig LayerWorkspaceManager::ConfigOf(WorkspaceMode mode,
                                                const std::optional<WorkspaceConfig>& given,
                                                const std::string& id, Device device) {
  WorkspaceConfig config =
      given.value_or(WorkspaceConfig::Inference());  // the last batch is often a smaller one
  const bool plans = config.policy_learning == LearningPolicy::kOptimized ||
                     config.policy_learning == LearningPolicy::kTraining;
  std::vector<std::string> reasons;
  if (given.has_value()) {
    if (config.workspace_mode != WorkspaceMode::kEnabled && config.workspace_mode != mode) {
      reasons.push_back(absl::StrCat("workspace_mode is ", ModeName(config.workspace_mode),
                                     ", the network's is ", ModeName(mode)));
    }
    if (mode == WorkspaceMode::kSeparate && plans) {
      reasons.push_back(
          "kSeparate plans nothing: policy_learning is kFirstLoop, kOverTime or kNone");
    }
    if (mode == WorkspaceMode::kSeparate && config.policy_location == LocationPolicy::kMmap) {
      reasons.push_back(
          "kSeparate is several workspaces, which cannot all be a mapping of one file");
    }
  } else if (mode == WorkspaceMode::kSingle || mode == WorkspaceMode::kSeparate) {
    config.policy_learning = LearningPolicy::kFirstLoop;
  }
  config.workspace_mode = mode == WorkspaceMode::kSeparate ? WorkspaceMode::kEnabled : mode;
  for (std::string& reason : config.Reasons(device)) reasons.push_back(std::move(reason));
  if (reasons.empty()) return config;
  ThrowInvalidArgument(
      absl::StrCat("network: workspace [", id, "]: ", absl::StrJoin(reasons, "; ")));
}

}  // namespace tidepool::nn
