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
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/finite.h"

namespace tidepool::nn {

// What replays work on, beside the network and the updater.
struct Trainer::Graphs {
  explicit Graphs(Network& network)
      : batches(network.name() + " batches", WorkspaceConfig::Inference(), network.device()),
        step(network.training_workspace(), "trainer") {
    const MemoryOwnerScope owner("graphs");
    const HandlesOwnScope handles;
    share = Zeros({}, network.dtype(), Place::On(network.device()));
  }

  // Of a step of so many examples. Arrays that are others are captured anew; a share that stays is not sent again.
  void Prepare(int64_t count, double new_share) {
    if (!results.is_defined() || results.dim(0) != count + 1) {
      const MemoryOwnerScope owner("graphs");
      results = Zeros({count + 1}, share.dtype(), Place::On(share.device()));
    }
    if (new_share == share_value) return;
    const auto write = [&](auto number) {
      HostView<decltype(number)> view(share, ViewContents::kOverwritten);
      view[0] = number;
    };
    share.dtype() == DType::kFloat64 ? write(new_share) : write(static_cast<float>(new_share));
    share_value = new_share;
  }

  Workspace batches;
  NDArray
      results;  // [batch + 1], of the last step: losses, then the mark of its gradients (FiniteMark)
  NDArray share;  // []: the gradient of an example's loss
  double share_value = 0;
  bool unsettled = false;  // results have not been read, and the step is not counted
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

// In an error's way; `before` undefined: nothing.
void RestoreQuietly(const NDArray& before, NDArray array) {
  if (!before.is_defined()) return;
  const NoGradientScope constants;
  try {
    CopyInto(before, array);
  } catch (const Error&) {
    // The device failed as well: the step's own error is on its way.
  }
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

void Trainer::set_graphs(bool graphs) {
  if (graphs == (graphs_ != nullptr)) return;
  if (graphs && network_.is_random()) {
    ThrowUnimplemented("trainer: layers that draw random numbers in each step cannot be captured");
  }
  if (graphs && network_.training_mode() == WorkspaceMode::kSeparate) {
    ThrowUnimplemented(
        "trainer: steps of workspace mode separate, whose workspaces open and close within them, "
        "cannot be captured");
  }
  Settle();
  graphs_ = graphs ? std::make_unique<Graphs>(network_) : nullptr;
}

void Trainer::set_loss_scale(const LossScaleConfig& config) {
  Settle();
  const LossScale scale(config);
  ForgetGraph();  // which looks at no gradients where there was none
  loss_scale_ = scale;
}

const ReplayedStep::Stats* Trainer::graph_stats() const {
  return graphs_ != nullptr ? &graphs_->step.stats() : nullptr;
}

void Trainer::ForgetGraph() {
  if (graphs_ != nullptr) graphs_->step.Forget();
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

double Trainer::ReplayStep(const NetworkInputs& inputs) {
  Graphs& graphs = *graphs_;
  const HandlesOwnScope handles;
  const int64_t count = inputs.features[0].dim(0);
  const double scale = loss_scale_.has_value() ? loss_scale_->scale() : network_.loss_scale();
  graphs.Prepare(count, scale / static_cast<double>(count));
  if (loss_scale_.has_value()) updater_.set_gradient_scale(1 / scale);
  updater_.SetNumbers();
  const std::vector<const NDArray*> state = updater_.state();
  NDArray parameters = network_.parameters(), gradients = network_.gradients(),
          beside = network_.beside();
  NDArray first = !state.empty() ? *state[0] : NDArray();
  NDArray second = state.size() > 1 ? *state[1] : NDArray();
  std::vector<const NDArray*> reads = {&updater_.numbers(), &graphs.share};
  for (const auto* arrays :
       {&inputs.features, &inputs.labels, &inputs.features_masks, &inputs.labels_masks}) {
    for (const NDArray& array : *arrays) reads.push_back(&array);
  }
  const uint64_t random_step = network_.step();
  graphs.step.Run(reads, {&parameters, &gradients, &first, &second, &graphs.results, &beside}, [&] {
    // Averages are not taken where the step is skipped, as the device alone knows, or fails behind its gradients.
    NDArray before;
    if (beside.is_defined()) before = beside.CopyTo(Place::CurrentOn(beside.device()));
    absl::Cleanup restore = [&] { RestoreQuietly(before, beside); };
    network_.QueueGradients(
        inputs,
        [&](const NDArray& losses) {
          NDArray part = graphs.results.Slice(0, 0, count);
          CopyInto(losses, part);
        },
        /*states=*/nullptr, &graphs.share);
    NDArray mark = graphs.results.Index(0, count);
    if (loss_scale_.has_value()) CopyInto(FiniteMark(gradients), mark);
    // NaN is not equal to itself. A constant to compare with would come from the host, which captures cannot have.
    if (loss_scale_.has_value() && beside.is_defined()) WhereInto(Equal(mark, mark), beside, before, beside);
    updater_.ApplyNumbers(gradients, parameters, loss_scale_.has_value() ? &mark : nullptr);
    std::move(restore).Cancel();
  });
  network_.set_step(random_step + 1);  // replays as well
  graphs.unsettled = true;
  // A step that nothing skips is done, whether its loss can be read or not.
  if (!loss_scale_.has_value()) updater_.Advance();
  return CountStep();
}

double Trainer::CountStep() {
  Graphs& graphs = *graphs_;
  const HandlesOwnScope handles;
  double loss = 0;
  bool finite = true;
  const auto read = [&](auto&& results) {
    const int64_t count = graphs.results.dim(0) - 1;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(results[i]);
    loss = sum / static_cast<double>(count);
    finite = results[count] == 0;
  };
  const auto read_any = [&] {
    if (graphs.results.dtype() == DType::kFloat64)
      return read(HostView<const double>(graphs.results));
    read(HostView<const float>(graphs.results));
  };
  if (!loss_scale_.has_value()) graphs.unsettled = false;
  try {
    read_any();
  } catch (const Error&) {
    // It must not be reported as a step that is not done while the results can still be had.
    read_any();
  }
  graphs.unsettled = false;
  if (loss_scale_.has_value() && Observe(finite)) updater_.Advance();
  return loss;
}

void Trainer::Settle() {
  if (graphs_ != nullptr && graphs_->unsettled) CountStep();
}

void Trainer::CheckOpen() {
  Settle();
  if (network_.layout_version() != layout_) {
    ThrowFailedPrecondition(
        absl::StrCat("trainer: parameters of network [", network_.name(),
                     "] were frozen or not since it was made, expected a trainer made afterwards"));
  }
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
  updater_.Apply(network_.gradients(), network_.parameters());
  may_undo_ = false;
  updated_version_ = version;
  return true;
}

void Trainer::Close() {
  ForgetGraph();
  if (manager_.ownership()) manager_.Close();
}

}  // namespace tidepool::nn
