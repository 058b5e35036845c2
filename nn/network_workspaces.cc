// Network: its workspaces, and outputs that are put where the caller says.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network.h"

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

WorkspaceConfig ConfigOf(WorkspaceMode mode, const std::optional<WorkspaceConfig>& given,
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

// Of those that kSeparate makes beside the one.
WorkspaceConfig ConfigOfOthers(WorkspaceConfig config) {
  config.initial_size = 0;
  return config;
}

// Replaces a workspace and its manager, or throws.
void MakeWorkspaces(const std::string& id, WorkspaceMode mode,
                    const std::optional<WorkspaceConfig>& given, Device device,
                    LayerWorkspaceManager::Phase phase, std::unique_ptr<Workspace>* workspace,
                    LayerWorkspaceManager* manager) {
  const WorkspaceConfig config = ConfigOf(mode, given, id, device);
  if (*workspace != nullptr && (*workspace)->is_open()) {
    ThrowFailedPrecondition(
        absl::StrCat("network: workspace [", id, "] is open, expected closed to be another one"));
  }
  auto made = std::make_unique<Workspace>(id, config, device);
  LayerWorkspaceManager managed(*made, mode, phase, ConfigOfOthers(config));
  *manager = std::move(managed);
  *workspace = std::move(made);
}

}  // namespace

void Network::set_training_workspace(WorkspaceMode mode,
                                     const std::optional<WorkspaceConfig>& config) {
  if (body_ == nullptr) ThrowMovedFrom("set_training_workspace");
  MakeWorkspaces(absl::StrCat(name(), " training"), mode, config, options_.device,
                 LayerWorkspaceManager::Phase::kTraining, &training_workspace_,
                 &workspaces_->training);
  options_.training_mode = mode;
  options_.training_workspace = config;
}

void Network::set_inference_workspace(WorkspaceMode mode,
                                      const std::optional<WorkspaceConfig>& config) {
  if (body_ == nullptr) ThrowMovedFrom("set_inference_workspace");
  MakeWorkspaces(absl::StrCat(name(), " inference"), mode, config, options_.device,
                 LayerWorkspaceManager::Phase::kInference, &inference_workspace_,
                 &workspaces_->inference);
  options_.inference_mode = mode;
  options_.inference_workspace = config;
}

NDArray Network::Output(const NDArray& features, Place place) {
  features.CheckAlive("network", "features");
  NDArray result;
  Infer([&] { return features; }, [&](const NDArray& output) { result = output.CopyTo(place); });
  return result;
}

void Network::OutputInto(const NDArray& features, NDArray& output) {
  CheckFeatures(features);
  CheckOutput(features, output);
  Infer([&] { return features; }, [&](const NDArray& found) { CopyInto(found, output); });
}

void Network::CheckOutput(const NDArray& features, const NDArray& output) const {
  output.CheckAlive("network", "output");
  output.CheckWritable("network");
  const bool fits = output.rank() == output_shape().rank() + 1 &&
                    output.dim(0) == features.dim(0) &&
                    Shape(output.shape().span().subspan(1)) == output_shape();
  if (fits && output.dtype() == options_.dtype && output.device() == options_.device) return;
  ThrowInvalidArgument(
      absl::StrCat("network: the output is written into ", DTypeName(output.dtype()), " ",
                   output.shape().ToString(), " on ", DeviceName(output.device()), ", expected ",
                   DTypeName(options_.dtype), " [", features.dim(0), "] + ",
                   output_shape().ToString(), " on ", DeviceName(options_.device)));
}

}  // namespace tidepool::nn
