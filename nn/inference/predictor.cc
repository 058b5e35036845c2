#include "tidepool/nn/inference/predictor.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool::nn {

void MoveOut(NDList& list, const Place& caller) {
  for (NDArray& array : list) MoveOut(array, caller);
}

// What replays work on, beside the network.
struct PredictorCore::Graphs {
  explicit Graphs(const Workspace& calls)
      : workspace(calls.id() + " graph", WorkspaceConfig::Inference(), calls.device()),
        step(workspace, "predictor") {}

  Workspace workspace;
  NDArray output;  // of the last request
  ReplayedStep step;
};

namespace {

// kSeparate is several workspaces, of which this is one.
WorkspaceConfig MainConfig(const WorkspaceConfig& given, const std::string& id, Device device) {
  if (given.workspace_mode != WorkspaceMode::kSeparate) return given;
  return LayerWorkspaceManager::ConfigOf(given.workspace_mode, given, id, device);
}

}  // namespace

PredictorCore::PredictorCore(Model& model, const std::string& name, int64_t budget_bytes,
                             const Device* device, const WorkspaceConfig& workspace)
    : model_(model.LinkFor("predictor")),
      network_(model.network),
      workspace_(absl::StrCat(network_->name(), " ", name),
                 MainConfig(workspace, absl::StrCat(network_->name(), " ", name),
                            device != nullptr ? *device : network_->device()),
                 device != nullptr ? *device : network_->device()),
      workspaces_(workspace_, workspace.workspace_mode, LayerWorkspaceManager::Phase::kInference,
                  workspace_.config()) {
  manager_ = model.manager.NewSubManager(name, workspace_.device());
  if (budget_bytes != 0) manager_.SetBudget(budget_bytes);
}

void PredictorCore::Run(absl::FunctionRef<void(PredictorContext&)> prepare,
                        absl::FunctionRef<void(PredictorContext&)> call) {
  Model& model = model_->Get("predictor");
  if (!prepared_) {
    // Not in a call's manager: what is prepared outlives the first one.
    PredictorContext context{model, manager_, manager_};
    const ScopeOutOfWorkspaces heap;
    const ManagerScope scope(manager_);
    prepare(context);
    prepared_ = true;
    manager_.Cap();
  }
  if (workspace_.device() != network_->device()) {
    const ScopeOutOfWorkspaces heap;
    replica_ = model.ReplicaOn(workspace_.device());
  }
  NDManager request = manager_.NewCycleManager("request", workspace_);
  PredictorContext context{model, request, manager_};
  const ManagerScope scope(request);
  call(context);
}

PredictorCore::~PredictorCore() = default;

void PredictorCore::set_graphs(bool graphs) {
  if (graphs == (graphs_ != nullptr)) return;
  if (graphs && workspaces_.mode() == WorkspaceMode::kSeparate) {
    ThrowUnimplemented(
        "predictor: calls of workspace mode separate, whose workspaces open and close within them, "
        "cannot be captured");
  }
  graphs_ = graphs ? std::make_unique<Graphs>(workspace_) : nullptr;
}

const ReplayedStep::Stats* PredictorCore::graph_stats() const {
  return graphs_ != nullptr ? &graphs_->step.stats() : nullptr;
}

void PredictorCore::Close() {
  if (graphs_ != nullptr) graphs_->step.Forget();
  manager_.Close();
}

NDList PredictorCore::Forward(const NDList& inputs) {
  if (inputs.size() != 1) {
    ThrowInvalidArgument(
        absl::StrCat("predictor: the network takes one array, the translator gave ", inputs.size(),
                     ": ", inputs.ToString()));
  }
  Network& network = *network_;
  if (NDArray output; engine_use_ != EngineUse::kNever && ForwardByEngine(inputs[0], output))
    return {output};
  const auto forward = [&](const NDArray& features) {
    if (workspaces_.mode() == WorkspaceMode::kSeparate) {
      return network.Forward(features, replica_ != nullptr ? &replica_->parameters : nullptr,
                             workspaces_);
    }
    return replica_ != nullptr ? network.Forward(features, replica_->parameters)
                               : network.Forward(features);
  };
  // What the engine was to append.
  const auto finished = [this](NDArray logits) {
    return appends_softmax_ ? Softmax(logits) : logits;
  };
  if (graphs_ == nullptr) return {finished(forward(inputs[0]))};
  network.CheckFeatures(inputs[0]);
  Graphs& graphs = *graphs_;
  NDArray features = inputs[0].To(workspace_.device());
  {
    const HandlesOwnScope handles;
    std::vector<int64_t> dims = {features.dim(0)};
    for (int64_t size : network.output_shape().span()) dims.push_back(size);
    if (!graphs.output.is_defined() || graphs.output.shape() != Shape(dims)) {
      const MemoryOwnerScope owner("graphs");
      graphs.output = Zeros(Shape(dims), DType::kFloat32, Place::On(workspace_.device()));
    }
    const NDArray& parameters = replica_ != nullptr ? replica_->parameters.flat : network.arrays();
    graphs.step.Run({&features, &parameters}, {&graphs.output},
                    [&] { CopyInto(forward(features), graphs.output); });
  }
  return {finished(graphs.output.Dup())};
}

void PredictorCore::set_engine(EngineUse use, const FrozenOptions& options) {
  model_->Get("predictor: set_engine");
  std::shared_ptr<SharedFrozen> shared;
  std::string why_not;
  if (use != EngineUse::kNever) {
    const ScopeOutOfWorkspaces heap;
    shared = SharedFrozen::Of(network_, options);
    shared->Current(&why_not);
    if (use == EngineUse::kAlways && !why_not.empty()) ThrowUnimplemented("predictor: " + why_not);
  }
  engine_use_ = use;
  appends_softmax_ = use != EngineUse::kNever && options.softmax;
  shared_frozen_ = std::move(shared);
  why_not_engine_ = std::move(why_not);
}

std::shared_ptr<const FrozenNetwork> PredictorCore::frozen() {
  model_->Get("predictor: frozen");
  std::string why_not;
  return shared_frozen_ == nullptr ? nullptr : shared_frozen_->Current(&why_not);
}

bool PredictorCore::ForwardByEngine(const NDArray& features, NDArray& output) {
  network_->CheckFeatures(features);
  const bool is_always = engine_use_ == EngineUse::kAlways;
  std::shared_ptr<const FrozenNetwork> frozen;
  // Before anything is frozen, which a write to the weights asks for.
  why_not_engine_ = is_always ? "" : shared_frozen_->WhyKernels(features.dim(0));
  if (!why_not_engine_.empty()) return false;
  if (workspace_.device() != Host()) {
    why_not_engine_ = absl::StrCat("the predictor is on ", DeviceName(workspace_.device()));
  } else {
    const ScopeOutOfWorkspaces heap;  // what is frozen now outlives the call
    frozen = shared_frozen_->Current(&why_not_engine_);
  }
  if (frozen == nullptr && is_always) ThrowUnimplemented("predictor: " + why_not_engine_);
  if (frozen == nullptr) return false;
  // The first freezing may have found out.
  why_not_engine_ = is_always ? "" : shared_frozen_->WhyKernels(features.dim(0));
  if (!why_not_engine_.empty()) return false;
  try {
    output = frozen->Run(features);
  } catch (const Error& error) {
    // The shape fits: it is not finite.
    if (is_always || error.code() != absl::StatusCode::kInvalidArgument) throw;
    why_not_engine_ = error.what();
    return false;
  }
  return true;
}

namespace internal {

void ThrowBadStreamBatch(int64_t batch) {
  ThrowInvalidArgument(
      absl::StrCat("predictor: a stream in batches of ", batch, ", expected at least 1"));
}

void ThrowBadUnbatch(size_t found, int64_t expected) {
  ThrowInvalidArgument(absl::StrCat("predictor: the batchifier made ", found,
                                    " results of a batch of ", expected, ", expected as many"));
}

}  // namespace internal

}  // namespace tidepool::nn
