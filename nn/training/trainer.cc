#include "tidepool/nn/training/trainer.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/finite.h"

namespace tidepool::nn {

// What replays work on, beside the network and the updater.
struct Trainer::Graphs {
  explicit Graphs(Network& network)
      : batches(network.name() + " batches", WorkspaceConfig::Inference(), network.device()),
        step(network.training_workspace(), "trainer") {}

  Workspace batches;
  NDArray losses;  // [batch], of the last step
  ReplayedStep step;
};

namespace {

// A group for each array, where arrays are treated in their own ways. Padding belongs to the array before it.
std::vector<ParameterGroup> GroupsOf(const Network& network, const UpdaterConfig& updater) {
  const bool decays = updater.l1 != 0 || updater.l2 != 0 || updater.weight_decay != 0;
  if (!decays && updater.clipping.kind != ClippingKind::kNormOfEach) return {};
  std::vector<ParameterGroup> groups;
  for (const NamedParameter& parameter : network.named_parameters()) {
    if (!parameter.is_trained) continue;
    if (!groups.empty()) groups.back().end = parameter.begin;
    groups.push_back({.begin = parameter.begin, .end = network.parameters().NumElements(), .decays = parameter.decays});
  }
  return groups;
}

Updater UpdaterOf(const Network& network, const UpdaterConfig& config) {
  return Updater(config, network.parameters().shape(), network.device(), network.dtype(), GroupsOf(network, config));
}

}  // namespace

template <typename Set>
struct Trainer::Made {
  NDManager manager;  // before the arrays, which go first; none where the trainer has none
  Set set;
};

NetworkInputs InputsOf(const Batch& batch) {
  NetworkInputs inputs{{batch.features}, {batch.labels}, {}, {}};
  if (batch.features_mask.is_defined()) inputs.features_masks.push_back(batch.features_mask);
  if (batch.labels_mask.is_defined()) inputs.labels_masks.push_back(batch.labels_mask);
  return inputs;
}

NetworkInputs InputsOf(const MultiDataSet& set) {
  return {set.features, set.labels, set.features_masks, set.labels_masks};
}

Trainer::Trainer(Network& network, const UpdaterConfig& updater, const std::optional<WorkspaceConfig>& workspace)
    : network_(network), layout_(network.layout_version()), updater_(UpdaterOf(network, updater)) {
  if (workspace.has_value()) network_.set_training_workspace(network_.training_mode(), workspace);
}

Trainer::Trainer(Model& model, const UpdaterConfig& updater, const std::optional<WorkspaceConfig>& workspace)
    : model_(model.LinkFor("trainer")),
      models_network_(model.network),
      network_(*models_network_),
      layout_(network_.layout_version()),
      updater_(UpdaterOf(*model.network, updater)) {
  if (workspace.has_value()) network_.set_training_workspace(network_.training_mode(), workspace);
  manager_ = model.manager.NewSubManager("trainer");
  for (const NDArray* state : updater_.state()) manager_.Attach(*state);
  manager_.Cap();
}

Trainer::~Trainer() { network_.ReleaseTape(); }

void Trainer::set_graphs(bool graphs) {
  if (graphs == (graphs_ != nullptr)) return;
  if (graphs && network_.is_random()) {
    ThrowUnimplemented("trainer: layers that draw random numbers in each step cannot be captured");
  }
  if (graphs && loss_scale_.has_value()) {
    ThrowUnimplemented("trainer: steps with a loss scale, whose gradients the host looks at, cannot be captured");
  }
  if (graphs && network_.training_mode() == WorkspaceMode::kSeparate) {
    ThrowUnimplemented("trainer: steps of workspace mode separate, whose workspaces open and close within them, cannot be captured");
  }
  graphs_ = graphs ? std::make_unique<Graphs>(network_) : nullptr;
}

void Trainer::set_loss_scale(const LossScaleConfig& config) {
  if (graphs_ != nullptr) ThrowUnimplemented("trainer: steps that are captured (set_graphs) have no loss scale");
  loss_scale_.emplace(config);
}

const ReplayedStep::Stats* Trainer::graph_stats() const {
  return graphs_ != nullptr ? &graphs_->step.stats() : nullptr;
}

void Trainer::ForgetGraph() {
  if (graphs_ != nullptr) graphs_->step.Forget();
}

template <typename Set>
double Trainer::StepByGraph(absl::FunctionRef<Set()> make) {
  CheckOpen();
  std::optional<WorkspaceScope> scope;
  if (model_ == nullptr) scope.emplace(graphs_->batches);
  Made<Set> made;
  if (model_ != nullptr) {
    made = Make(make, graphs_->batches);
  } else {
    made.set = make();
  }
  return ReplayStep(network_.PrepareInputs(InputsOf(made.set)));
}

double Trainer::ReplayStep(const NetworkInputs& inputs) {
  Graphs& graphs = *graphs_;
  const HandlesOwnScope handles;
  if (network_.loss_scale() != 1) {
    ThrowFailedPrecondition(absl::StrCat("trainer: loss scale ", network_.loss_scale(), " of network [", network_.name(),
                                         "], which is no part of steps that are captured, expected 1"));
  }
  const int64_t count = inputs.features[0].dim(0);
  if (!graphs.losses.is_defined() || graphs.losses.dim(0) != count) {
    const MemoryOwnerScope owner("graphs");
    graphs.losses = Zeros({count}, network_.dtype(), Place::On(network_.device()));
  }
  updater_.SetNumbers();
  const std::vector<const NDArray*> state = updater_.state();
  NDArray parameters = network_.parameters(), gradients = network_.gradients();
  NDArray first = !state.empty() ? *state[0] : NDArray();
  NDArray second = state.size() > 1 ? *state[1] : NDArray();
  std::vector<const NDArray*> reads = {&updater_.numbers()};
  for (const auto* arrays : {&inputs.features, &inputs.labels, &inputs.features_masks, &inputs.labels_masks}) {
    for (const NDArray& array : *arrays) reads.push_back(&array);
  }
  graphs.step.Run(reads, {&parameters, &gradients, &first, &second, &graphs.losses}, [&] {
                    network_.QueueGradients(
                        inputs, [&](const NDArray& losses) { CopyInto(losses, graphs.losses); });
                    updater_.ApplyNumbers(gradients, parameters);
                  });
  updater_.Advance();
  try {
    return Network::MeanLoss(graphs.losses);
  } catch (const Error&) {
    // The step is done: it must not be reported as one that is not while the loss can still be had.
    return Network::MeanLoss(graphs.losses);
  }
}

void Trainer::CheckOpen() const {
  if (network_.layout_version() != layout_) {
    ThrowFailedPrecondition(absl::StrCat("trainer: parameters of network [", network_.name(),
                                         "] were frozen or not since it was made, expected a trainer made afterwards"));
  }
  if (model_ == nullptr) return;
  model_->Get("trainer");
  if (!manager_.is_open()) ThrowFailedPrecondition("trainer: it is closed");
}

template <typename Set>
double Trainer::StepOf(absl::FunctionRef<Set()> make) {
  if (graphs_ != nullptr) return StepByGraph(make);
  CheckOpen();
  double loss;
  if (model_ == nullptr) {
    WorkspaceScope scope(network_.training_workspace());
    {
      const Set set = make();
      loss = Gradients(InputsOf(set));
    }
    Update();
    return loss;
  }
  const Made<Set> made = Make(make, network_.training_workspace());
  const ManagerScope scope(made.manager);
  loss = Gradients(InputsOf(made.set));
  Update();
  return loss;
}
template double Trainer::StepOf(absl::FunctionRef<Batch()> make);
template double Trainer::StepOf(absl::FunctionRef<MultiDataSet()> make);

template <typename Set>
Trainer::Made<Set> Trainer::Make(absl::FunctionRef<Set()> make, Workspace& workspace) {
  Made<Set> made;
  made.manager = manager_.NewCycleManager("batch", workspace);
  const ManagerScope scope(made.manager);
  made.set = make();
  return made;
}

Batch Trainer::NewBatch(absl::FunctionRef<Batch()> make_batch) {
  CheckOpen();
  if (model_ == nullptr) {
    ThrowFailedPrecondition("trainer: NewBatch needs a trainer of a model, which has managers");
  }
  ForgetGraph();
  Made<Batch> made = Make(make_batch, network_.training_workspace());
  made.set.manager = std::move(made.manager);
  return std::move(made.set);
}

double Trainer::ComputeGradients(const Batch& batch) {
  CheckOpen();
  ForgetGraph();
  std::optional<ManagerScope> scope;
  if (batch.manager.is_open()) scope.emplace(batch.manager);
  return Gradients(InputsOf(batch));
}

double Trainer::ComputeGradients(const MultiDataSet& set) {
  CheckOpen();
  ForgetGraph();
  return Gradients(InputsOf(set));
}

double Trainer::Gradients(const NetworkInputs& inputs) {
  if (!loss_scale_.has_value()) return network_.ComputeGradients(inputs);
  // The network's own callers see gradients as they are.
  const absl::Cleanup restore = [this, before = network_.loss_scale()] { network_.set_loss_scale(before); };
  network_.set_loss_scale(loss_scale_->scale());
  return network_.ComputeGradients(inputs);
}

bool Trainer::Update() {
  CheckOpen();
  ForgetGraph();
  const HandlesOwnScope handles;
  if (loss_scale_.has_value()) {
    const double scale = loss_scale_->scale();
    if (!loss_scale_->Observe(AllFinite(network_.gradients()))) {
      if (!loss_scale_->has_diverged()) return false;
      throw DivergedError(absl::StrCat("trainer: gradients of network [", network_.name(), "] are not finite behind step ", steps(),
                                       " at loss scale ", scale, ", which can go no lower: training has diverged"));
    }
    updater_.set_gradient_scale(1 / scale);
  }
  updater_.Apply(network_.gradients(), network_.parameters());
  return true;
}

void Trainer::Close() {
  ForgetGraph();
  if (manager_.ownership()) manager_.Close();
}

}  // namespace tidepool::nn
