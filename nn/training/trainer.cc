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
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/finite.h"
#include "tidepool/nn/training/trainer_graphs.h"

namespace tidepool::nn {

namespace {

// A group for each array, where arrays are treated in their own ways. Padding belongs to the array before it.
std::vector<ParameterGroup> GroupsOf(const Network& network, const UpdaterConfig& updater) {
  const bool decays = updater.l1 != 0 || updater.l2 != 0 || updater.weight_decay != 0;
  if (!decays && updater.clipping.kind != ClippingKind::kNormOfEach) return {};
  std::vector<ParameterGroup> groups;
  for (const NamedParameter& parameter : network.named_parameters()) {
    if (!parameter.is_trained) continue;
    if (!groups.empty()) groups.back().end = parameter.begin;
    groups.push_back(
        {.begin = parameter.begin, .end = network.trained_elements(), .decays = parameter.decays});
  }
  return groups;
}

Updater UpdaterOf(const Network& network, const UpdaterConfig& config) {
  return Updater(config, {network.trained_elements()}, network.device(), network.dtype(),
                 GroupsOf(network, config),
                 network.is_hosted() ? Updater::State::kNone : Updater::State::kWhole);
}

}  // namespace

template <typename Set>
struct Trainer::Made {
  NDManager manager;  // before the arrays, which go first; none where the trainer has none
  std::optional<Set> set;
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

Trainer::Trainer(Network& network, const UpdaterConfig& updater,
                 const std::optional<WorkspaceConfig>& workspace)
    : network_(network), layout_(network.layout_version()), updater_(UpdaterOf(network, updater)) {
  if (network_.step() == 0) updated_version_ = GradientsVersion();
  if (workspace.has_value()) network_.set_training_workspace(network_.training_mode(), workspace);
}

Trainer::Trainer(Model& model, const UpdaterConfig& updater,
                 const std::optional<WorkspaceConfig>& workspace)
    : model_(model.LinkFor("trainer")),
      models_network_(model.network),
      network_(*models_network_),
      layout_(network_.layout_version()),
      updater_(UpdaterOf(*model.network, updater)) {
  if (network_.step() == 0) updated_version_ = GradientsVersion();
  if (workspace.has_value()) network_.set_training_workspace(network_.training_mode(), workspace);
  manager_ = model.manager.NewSubManager("trainer");
  for (const NDArray* state : updater_.state()) manager_.Attach(*state);
  manager_.Cap();
}

Trainer::~Trainer() { network_.ReleaseTape(); }

void Trainer::set_loss_scale(const LossScaleConfig& config) {
  Settle();
  const LossScale scale(config);
  ForgetGraph();  // which looks at no gradients where there was none
  loss_scale_ = scale;
}

template <typename Set>
std::optional<double> Trainer::StepByGraph(absl::FunctionRef<std::optional<Set>()> next) {
  CheckOpen();
  std::optional<WorkspaceScope> scope;
  if (model_ == nullptr) scope.emplace(graphs_->batches);
  Made<Set> made;
  if (model_ != nullptr) {
    made = Make(next, graphs_->batches);
  } else {
    made.set = next();
  }
  if (!made.set.has_value()) return std::nullopt;
  return ReplayStep(network_.PrepareInputs(InputsOf(*made.set)));
}

void Trainer::CheckLayout() const {
  if (network_.layout_version() == layout_) return;
  ThrowFailedPrecondition(
      absl::StrCat("trainer: parameters of network [", network_.name(),
                   "] were frozen or not since it was made, expected a trainer made afterwards"));
}

void Trainer::CheckOpen() {
  Settle();
  CheckLayout();
  if (!network_.is_hosted()) updater_.CheckKeepsAll("trainer");
  if (model_ == nullptr) return;
  model_->Get("trainer");
  if (!manager_.is_open()) ThrowFailedPrecondition("trainer: it is closed");
}

// Whether a step is done whose gradients are all finite or not.
bool Trainer::Observe(bool finite) {
  const double scale = loss_scale_->scale();
  if (loss_scale_->Observe(finite)) return true;
  if (!loss_scale_->has_diverged()) return false;
  throw DivergedError(absl::StrCat("trainer: gradients of network [", network_.name(),
                                   "] are not finite behind step ", steps(), " at loss scale ",
                                   scale, ", which can go no lower: training has diverged"));
}

template <typename Set>
std::optional<double> Trainer::StepOf(absl::FunctionRef<std::optional<Set>()> next) {
  if (graphs_ != nullptr) return StepByGraph(next);
  CheckOpen();
  double loss;
  if (model_ == nullptr) {
    WorkspaceScope scope(network_.training_workspace());
    {
      const std::optional<Set> set = next();
      if (!set.has_value()) return std::nullopt;
      loss = Gradients(InputsOf(*set));
    }
    UpdateOfStep();
    return loss;
  }
  const Made<Set> made = Make(next, network_.training_workspace());
  if (!made.set.has_value()) return std::nullopt;
  const ManagerScope scope(made.manager);
  loss = Gradients(InputsOf(*made.set));
  UpdateOfStep();
  return loss;
}
template std::optional<double> Trainer::StepOf(absl::FunctionRef<std::optional<Batch>()> next);
template std::optional<double> Trainer::StepOf(
    absl::FunctionRef<std::optional<MultiDataSet>()> next);

template <typename Set>
Trainer::Made<Set> Trainer::Make(absl::FunctionRef<std::optional<Set>()> next,
                                 Workspace& workspace) {
  Made<Set> made;
  made.manager = manager_.NewCycleManager("batch", workspace);
  const ManagerScope scope(made.manager);
  made.set = next();
  return made;
}

Batch Trainer::NewBatch(absl::FunctionRef<Batch()> make_batch) {
  CheckOpen();
  if (model_ == nullptr) {
    ThrowFailedPrecondition("trainer: NewBatch needs a trainer of a model, which has managers");
  }
  ForgetGraph();
  Made<Batch> made = Make<Batch>([&] { return std::optional<Batch>(make_batch()); },
                                 network_.training_workspace());
  made.set->manager = std::move(made.manager);
  return std::move(*made.set);
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
  // The network's own callers see gradients as they are.
  const absl::Cleanup restore = [this, before = network_.loss_scale()] {
    network_.set_loss_scale(before);
  };
  if (loss_scale_.has_value()) network_.set_loss_scale(loss_scale_->scale());
  // Updates that take memory or a device's call may fail, those of a loss scale be skipped.
  const ClippingKind clipping = updater_.config().clipping.kind;
  const bool by_norm =
      clipping == ClippingKind::kNormOfEach || clipping == ClippingKind::kGlobalNorm;
  const bool may_undo = network_.beside().is_defined() &&
                        (loss_scale_.has_value() || by_norm || network_.device() != Host());
  if (may_undo) {
    const ScopeOutOfWorkspaces heap;
    const HandlesOwnScope handles;
    const NoGradientScope constants;
    if (!beside_before_.is_defined()) {
      const MemoryOwnerScope owner("trainer");
      beside_before_ = network_.beside().CopyTo(Place::On(network_.device()));
    } else {
      CopyInto(network_.beside(), beside_before_);
    }
  }
  may_undo_ = false;
  const double loss = network_.ComputeGradients(inputs);
  may_undo_ = may_undo;
  return loss;
}

void Trainer::UndoBeside() {
  if (!std::exchange(may_undo_, false)) return;
  const NoGradientScope constants;
  NDArray beside = network_.beside();
  CopyInto(beside_before_, beside);
}

// A step whose update fails is done again, gradients and averages included.
void Trainer::UpdateOfStep() {
  absl::Cleanup undo = [this] {
    if (updated_version_ == GradientsVersion()) return;  // it is skipped, and has diverged
    if (std::exchange(may_undo_, false)) RestoreQuietly(beside_before_, network_.beside());
    network_.set_step(network_.step() - 1);
  };
  Update();
  std::move(undo).Cancel();
}

uint32_t Trainer::GradientsVersion() const {
  if (network_.is_hosted()) return 0;  // they are the host's, who updates
  const Buffer* const buffer = network_.gradients().buffer().get();
  return buffer != nullptr ? buffer->version.load(std::memory_order_relaxed) : 0;
}

bool Trainer::Update() {
  CheckOpen();
  ForgetGraph();
  const uint32_t version = GradientsVersion();
  if (version == updated_version_ && !network_.is_hosted()) {
    ThrowFailedPrecondition(
        absl::StrCat("trainer: Update without gradients of network [", network_.name(),
                     "] since the last one, expected ComputeGradients before it"));
  }
  const HandlesOwnScope handles;
  const std::optional<LossScale> before = loss_scale_;
  if (loss_scale_.has_value()) {
    const double scale = loss_scale_->scale();
    const bool finite = AllFinite(network_.gradients());
    if (!finite) {
      UndoBeside();
      updated_version_ = version;
    }
    if (!Observe(finite)) return false;
    updater_.set_gradient_scale(1 / scale);
  }
  absl::Cleanup undo = [&] { loss_scale_ = before; };  // the step is done again
  updater_.Apply(network_.gradients(), network_.parameters());
  std::move(undo).Cancel();
  may_undo_ = false;
  updated_version_ = version;
  return true;
}

void Trainer::MakeWhatUpdateMakes() const {
  const HandlesOwnScope handles;
  if (loss_scale_.has_value()) AllFinite(network_.gradients());
  updater_.MakeWhatApplyMakes(network_.gradients());
}

void Trainer::Close() {
  ForgetGraph();
  if (manager_.ownership()) manager_.Close();
}

}  // namespace tidepool::nn
