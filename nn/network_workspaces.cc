// Network: its workspaces, and outputs that are put where the caller says.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/network/network_body.h"

namespace tidepool::nn {
namespace {

// Replaces a workspace and its manager, or throws.
void MakeWorkspaces(const std::string& id, WorkspaceMode mode,
                    const std::optional<WorkspaceConfig>& given, Device device,
                    LayerWorkspaceManager::Phase phase, std::unique_ptr<Workspace>* workspace,
                    LayerWorkspaceManager* manager) {
  const WorkspaceConfig config = LayerWorkspaceManager::ConfigOf(mode, given, id, device);
  if (*workspace != nullptr && (*workspace)->is_open()) {
    ThrowFailedPrecondition(
        absl::StrCat("network: workspace [", id, "] is open, expected closed to be another one"));
  }
  auto made = std::make_unique<Workspace>(id, config, device);
  LayerWorkspaceManager managed(*made, mode, phase, config);
  *manager = std::move(managed);
  *workspace = std::move(made);
}

// Whether steps in that mode can follow a plan of activations.
bool HoldsPlans(WorkspaceMode mode) {
  return mode == WorkspaceMode::kEnabled || mode == WorkspaceMode::kNone;
}

}  // namespace

void Network::set_training_workspace(WorkspaceMode mode,
                                     const std::optional<WorkspaceConfig>& config) {
  if (body_ == nullptr) ThrowMovedFrom("set_training_workspace");
  if (activations_ != nullptr && !HoldsPlans(mode)) {
    ThrowFailedPrecondition(absl::StrCat("network [", name(), "]: workspace mode ",
                                         mode == WorkspaceMode::kSingle ? "single" : "separate",
                                         " under a plan of activations, expected enabled or none, "
                                         "or no plan (SetActivationPlan({}))"));
  }
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

void Network::CheckActivationPlan(const ActivationPlan& plan, bool has_file) const {
  const std::string who = absl::StrCat("network [", name(), "]: plan of activations: ");
  if (body_->config() == nullptr)
    ThrowUnimplemented(who +
                       "the order of layers is a program's, expected a network of a configuration");
  if (is_hosted()) ThrowUnimplemented(who + "parameters are hosted, expected the network's own");
  if (!HoldsPlans(training_mode())) {
    ThrowUnimplemented(who +
                       "workspace modes single and separate reuse no memory within a step by "
                       "lifetimes, expected enabled or none");
  }
  const size_t expected = body_->config()->nodes.size();
  size_t layers = 0;
  for (const ActivationSegment& segment : plan.segments) {
    if (segment.layers < 1)
      ThrowInvalidArgument(
          absl::StrCat(who, "a segment of ", segment.layers, " layers, expected at least 1"));
    layers += static_cast<size_t>(segment.layers);
  }
  if (layers != expected)
    ThrowInvalidArgument(absl::StrCat(who, layers, " layers, expected ", expected));
  int begin = 0;
  for (const ActivationSegment& segment : plan.segments) {
    if (segment.slice != 0) {
      if (segment.slice < 0 || !segment.recomputes())
        ThrowInvalidArgument(absl::StrCat(who, "slices of ", segment.slice, " of segments that ",
                                          RetentionName(segment.retention),
                                          ", expected at least 1, of those that are recomputed"));
      std::string why_not;
      const int64_t examples = SliceOf(begin, segment.layers, &why_not);
      if (examples == 0)
        ThrowUnimplemented(absl::StrCat(who, "slices of the batch, of layers ", begin, " to ",
                                        begin + segment.layers - 1, ": ", why_not));
      if (segment.slice % examples != 0)
        ThrowInvalidArgument(absl::StrCat(who, "slices of ", segment.slice,
                                          " examples, expected a multiple of ", examples));
    }
    begin += segment.layers;
  }
  if (plan.spill_behind < 1 || plan.spill_ahead < 0) {
    ThrowInvalidArgument(absl::StrCat(who, "writes end ", plan.spill_behind,
                                      " segments behind and reads begin ", plan.spill_ahead,
                                      " ahead, expected at least 1 and 0"));
  }
  const bool needs_file = plan.spills() && device() == Host();
  if (needs_file && !has_file) ThrowInvalidArgument(who + "it spills, and there is no file");
  if (has_file && device() != Host()) {
    ThrowInvalidArgument(absl::StrCat(who, "found a file, and the network is on ",
                                      DeviceName(device()),
                                      ", from where arrays wait on the host; expected none"));
  }
}

int64_t Network::SliceOf(int begin, int layers, std::string* why_not) const {
  CheckWhole("slice");
  std::string reason;
  int64_t examples = 0;
  const int64_t all = body_->config() != nullptr ? std::ssize(body_->config()->nodes) : 0;
  if (begin < 0 || layers < 1 || int64_t{begin} + layers > all) {
    reason = absl::StrCat("there are ", all, " layers");
  } else if (dtype() != DType::kFloat32 || compute_type().has_value() || device() != Host()) {
    reason = "it computes by another type than f32, or on a device";
  } else {
    examples = body_->SliceOf(begin, layers, &reason);
  }
  if (why_not != nullptr) *why_not = std::move(reason);
  return examples;
}

void Network::SetActivationPlan(const ActivationPlan& plan, std::shared_ptr<SpillFile> file,
                                SegmentObserver* observer) {
  CheckWhole("activation_plan");
  if (training_workspace_->is_open()) {
    ThrowFailedPrecondition(absl::StrCat(
        "network [", name(),
        "]: another plan of activations while a step is under way, or captured by a trainer with "
        "graphs (Trainer::ForgetGraph)"));
  }
  if (!plan.segments.empty()) CheckActivationPlan(plan, file != nullptr);
  std::shared_ptr<Activations> activations;
  if (!plan.segments.empty()) {
    activations = std::make_shared<Activations>();
    activations->plan = plan;
    activations->file = std::move(file);
    activations->observer = observer;
  }
  activations_ = std::move(activations);
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

LayerWorkspaceManager& Network::training_workspaces() {
  return CheckWhole("training_workspaces").workspaces_->training;
}
LayerWorkspaceManager& Network::inference_workspaces() {
  return CheckWhole("inference_workspaces").workspaces_->inference;
}
Workspace& Network::training_workspace() {
  return *CheckWhole("training_workspace").training_workspace_;
}
Workspace& Network::inference_workspace() {
  return *CheckWhole("inference_workspace").inference_workspace_;
}

}  // namespace tidepool::nn
