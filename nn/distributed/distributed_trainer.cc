#include "tidepool/nn/distributed/distributed_trainer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/error_context.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/distributed/rank_agreement.h"

namespace tidepool::nn {
namespace {

constexpr char kName[] = "distributed";

bool HasFeatures(const Batch& batch) { return batch.features.is_defined(); }
bool HasFeatures(const MultiDataSet& set) {
  return !set.features.empty() && set.features[0].is_defined();
}

// The same on all ranks, or none can train: on the host, or on each rank's device of the transport.
std::string WhereParametersAre(Trainer& trainer, const Communicator& communicator) {
  const Device device = trainer.network().device();
  if (device == Host()) return "on the host";
  if (device == communicator.device()) return "on the rank's device";
  return absl::StrCat("on ", DeviceName(device), " beside a transport that moves memory of ",
                      DeviceName(communicator.device()));
}

}  // namespace

DistributedTrainer::DistributedTrainer(Trainer& trainer, Communicator& communicator,
                                       const DistributedConfig& config)
    : trainer_(trainer),
      communicator_(communicator),
      config_(config),
      layout_(trainer.network().layout_version()),
      buckets_(trainer.network(), communicator, config.bucket_bytes,
               config.shard_updater || config.shard_parameters ? GradientBuckets::Sums::kOwnPart
                                                               : GradientBuckets::Sums::kWhole) {
  if (config.ranks < 0) {
    ThrowInvalidArgument(
        absl::StrCat(kName, ": ", config.ranks, " ranks, expected 0 (any) or more"));
  }
  if (config.ranks != 0 && config.ranks != communicator.size()) {
    ThrowFailedPrecondition(absl::StrCat(
        kName, ": a job of ", communicator.size(), " ranks, expected ", config.ranks,
        communicator.size() == 1 ? "; was it started by mpirun of the MPI that is linked?" : ""));
  }
  if (trainer.graph_stats() != nullptr) {
    ThrowUnimplemented(absl::StrCat(
        kName,
        ": the trainer's steps are captured (set_graphs), expected a trainer without graphs"));
  }
  trainer.CheckLayout();
  trainer.updater().CheckKeepsAll(kName);
  RankFacts facts = FactsOf(trainer);
  facts.emplace_back("buckets",
                     absl::StrCat(buckets_.count(), " of at most ", config.bucket_bytes, " bytes"));
  facts.emplace_back("updater's state", shards_updater() ? "in parts" : "whole");
  facts.emplace_back("parameters' memory",
                     config.shard_parameters
                         ? absl::StrCat("in parts, ", config.gather_ahead, " gathered ahead")
                         : "whole");
  facts.emplace_back("parameters at first", trainer.network().is_hosted() ? "hosted" : "there");
  facts.emplace_back("where parameters are", WhereParametersAre(trainer, communicator));
  CheckFacts(communicator, facts);
  const Device device = trainer.network().device();
  if (device != Host() && device != communicator.device()) {
    ThrowUnimplemented(
        absl::StrCat(kName, ": network [", trainer.network().name(), "] is on ", DeviceName(device),
                     ", expected it on ",
                     communicator.device() == Host()
                         ? "the host: the transport moves no memory of devices, which \"nccl\" does"
                         : absl::StrCat(DeviceName(communicator.device()),
                                        ", whose memory the transport moves on this rank")));
  }
  if (config.shard_parameters) {
    TakeParts();
    return;
  }
  if (trainer.network().is_hosted()) {
    ThrowFailedPrecondition(absl::StrCat(kName, ": the parameters of network [",
                                         trainer.network().name(),
                                         "] are hosted, expected shard_parameters"));
  }
  BroadcastState(/*parameters=*/true);
  if (config.shard_updater) trainer.updater().KeepOnly(buckets_.OwnRanges());
}

DistributedTrainer::~DistributedTrainer() = default;

template <typename Set>
DistributedPass DistributedTrainer::FitOn(Iterator<Set>& batches) {
  if (fitting_) ThrowFailedPrecondition(absl::StrCat(kName, ": Fit while a pass is under way"));
  fitting_ = true;
  const absl::Cleanup done = [&] { fitting_ = false; };
  CheckSettings(communicator_, trainer_);
  DistributedPass pass;
  const auto next = [&] { return batches.Next(); };
  while (const std::optional<DistributedStep> step = StepOf<Set>(next, pass.steps)) {
    ++pass.steps;
    pass.examples += step->examples;
    pass.loss += step->loss * static_cast<double>(step->examples);
    if (listener_) listener_(*step);
  }
  if (pass.examples > 0) pass.loss /= static_cast<double>(pass.examples);
  CheckSameParameters();
  return pass;
}

void DistributedTrainer::CheckSameParameters() {
  nn::CheckSameParameters(communicator_, trainer_.network(),
                          absl::StrCat("behind step ", trainer_.steps()));
}

void DistributedTrainer::ThrowOthersFailed(const Told& told, const char* doing) const {
  const double failed = told.values[2];
  throw Error(absl::StatusCode::kAborted,
              absl::StrCat(kName, ": ",
                           failed == 1 ? absl::StrCat("rank ", told.values[3])
                                       : absl::StrCat(failed, " ranks"),
                           " could not ", doing, " behind step ", trainer_.steps(),
                           ", as said there; nothing has changed"));
}

template DistributedPass DistributedTrainer::FitOn(Iterator<DataSet>& batches);
template DistributedPass DistributedTrainer::FitOn(Iterator<MultiDataSet>& batches);

template <typename Set>
std::optional<DistributedStep> DistributedTrainer::StepOf(
    absl::FunctionRef<std::optional<Set>()> next, std::optional<int64_t> number) {
  // A source may throw the same one again.
  const auto of_batch = [&](const std::exception_ptr& error) {
    if (!number.has_value()) return error;
    return WithContext<DivergedError>(error, absl::StrCat(kName, ": batch ", *number));
  };
  Network& network = trainer_.network();
  if (network.layout_version() != layout_) {
    ThrowFailedPrecondition(
        absl::StrCat(kName, ": parameters of network [", network.name(),
                     "] were frozen or not since it was made, expected one made afterwards"));
  }
  communicator_.set_step(trainer_.steps());
  const uint64_t drawn = network.step();
  const double loss_scale = network.loss_scale();
  const absl::Cleanup restore_scale = [&] { network.set_loss_scale(loss_scale); };
  const auto rank = static_cast<double>(communicator_.rank());

  const WorkspaceScope scope(network.training_workspace());
  std::exception_ptr failure;
  std::optional<Set> batch;
  const absl::Cleanup release = [&] {
    if (sharded_ != nullptr) sharded_->ReleaseReserve();
  };
  try {
    if (sharded_ != nullptr) sharded_->Reserve(ParameterHost::Pass::kTraining);
    batch = next();
    if (batch.has_value() && !HasFeatures(*batch)) {
      ThrowInvalidArgument(
          absl::StrCat(kName, ": a batch has no features, expected those of at least one example"));
    }
  } catch (...) {
    failure = of_batch(std::current_exception());
    batch.reset();
  }
  const double examples = batch.has_value() ? static_cast<double>(batch->size()) : 0;
  const bool failed = failure != nullptr;
  begin_.values = {examples, batch.has_value() ? 1.0 : 0.0, failed ? 1.0 : 0.0, failed ? rank : 0};
  communicator_.Start(CollectiveKind::kAllReduce, absl::MakeSpan(begin_.values), begin_.sum,
                      "examples");
  // Where parameters are gathered for the forward pass, ranks are known to do so before it begins.
  if (!batch.has_value() || sharded_ != nullptr) {
    begin_.sum.Wait();
    if (failed) std::rethrow_exception(failure);
    if (begin_.values[2] > 0) ThrowOthersFailed(begin_, "make its batch");
    if (begin_.values[1] == 0) return std::nullopt;
  }

  const HandlesOwnScope handles;
  NDArray beside = network.beside(), beside_before;
  if (beside.is_defined()) beside_before = beside.Dup();
  buckets_.Begin();
  network.set_step(drawn * static_cast<uint64_t>(communicator_.size()) +
                   static_cast<uint64_t>(communicator_.rank()));
  double loss = 0;
  try {
    if (batch.has_value()) {
      Compute(*batch, &loss);
    } else if (sharded_ != nullptr) {
      sharded_->Idle(ParameterHost::Pass::kTraining);
    } else {
      NDArray gradients = network.gradients();
      FillInto(0, gradients);
    }
  } catch (...) {
    failure = of_batch(std::current_exception());
    // Before the pass had begun: the other ranks gather in theirs.
    if (sharded_ != nullptr && sharded_->is_reserved())
      sharded_->Idle(ParameterHost::Pass::kTraining);
  }
  batch.reset();
  network.set_step(drawn);
  begin_.sum.Wait();
  if (begin_.values[2] > 0) {
    if (beside.is_defined()) CopyInto(beside_before, beside);
    ThrowOthersFailed(begin_, "make its batch");
  }
  // To the end whatever happened here, as the other ranks do.
  if (sharded_ == nullptr) buckets_.BeginRest();
  if (beside.is_defined()) {
    if (examples == 0) FillInto(0, beside);
    communicator_.Start(CollectiveKind::kAllReduce, ElementsOf(beside), beside_,
                        "running averages");
  }
  end_.values = {loss * examples, 0, failure != nullptr ? 1.0 : 0.0, failure != nullptr ? rank : 0};
  communicator_.Start(CollectiveKind::kAllReduce, absl::MakeSpan(end_.values), end_.sum, "losses");
  if (sharded_ == nullptr) buckets_.Wait();
  beside_.Wait();
  end_.sum.Wait();
  if (end_.values[2] > 0) {
    if (beside.is_defined()) CopyInto(beside_before, beside);
    if (failure != nullptr) std::rethrow_exception(failure);
    ThrowOthersFailed(end_, "compute its gradients");
  }
  DistributedStep step;
  step.examples = static_cast<int64_t>(begin_.values[0]);
  step.ranks = static_cast<int>(begin_.values[1]);
  step.loss = end_.values[0] / begin_.values[0];
  if (beside.is_defined()) beside *= 1.0 / step.ranks;
  // A step that is skipped leaves running averages as they were.
  absl::Cleanup undo = [&] {
    if (beside.is_defined()) CopyInto(beside_before, beside);
  };
  step.updated = shards_updater() ? UpdateOwnParts() : trainer_.Update();
  if (step.updated) std::move(undo).Cancel();
  network.set_step(drawn + 1);
  if (!order_learned_ && sharded_ == nullptr) LearnOrder();
  return step;
}

template std::optional<DistributedStep> DistributedTrainer::StepOf(
    absl::FunctionRef<std::optional<Batch>()> next, std::optional<int64_t> number);
template std::optional<DistributedStep> DistributedTrainer::StepOf(
    absl::FunctionRef<std::optional<MultiDataSet>()> next, std::optional<int64_t> number);

template <typename Set>
void DistributedTrainer::Compute(const Set& batch, double* loss) {
  Network& network = trainer_.network();
  const double scale =
      trainer_.loss_scale() != nullptr ? trainer_.loss_scale()->scale() : network.loss_scale();
  const NetworkInputs inputs = network.PrepareInputs(InputsOf(batch));
  network.set_gradient_listener(sharded_ == nullptr ? &buckets_ : nullptr);
  const absl::Cleanup silence = [&] { network.set_gradient_listener(nullptr); };
  network.QueueGradients(inputs, [&](const NDArray& losses) {
    *loss = Network::MeanLoss(losses);
    begin_.sum.Wait();
    if (begin_.values[2] > 0) ThrowOthersFailed(begin_, "make its batch");
    // Of the mean of all examples of the step.
    network.set_loss_scale(scale * static_cast<double>(batch.size()) / begin_.values[0]);
  });
}

void DistributedTrainer::LearnOrder() {
  std::vector<int32_t> order = buckets_.completed();
  communicator_.Broadcast(
      absl::MakeSpan(reinterpret_cast<std::byte*>(order.data()), order.size() * sizeof(int32_t)), 0,
      "order of buckets");
  buckets_.set_order(order);
  order_learned_ = true;
}

bool DistributedTrainer::UpdateOwnParts() {
  Network& network = trainer_.network();
  Updater& updater = trainer_.updater();
  LossScale* const loss_scale = trainer_.loss_scale();
  const GradientClipping& clipping = updater.config().clipping;
  const bool clips = clipping.kind == ClippingKind::kGlobalNorm;
  if (loss_scale != nullptr || clips) {
    // Whether some are not finite, and the squares' sum.
    std::array<double, 2> told = {0, 0};
    int64_t kept = 0;  // elements before, of this rank's parts
    for (const auto& [begin, end] : buckets_.OwnRanges()) {
      if (begin == end) continue;
      const NDArray part = sharded_ != nullptr
                               ? sharded_->gradients().Slice(0, kept, kept + end - begin)
                               : network.gradients().Slice(0, begin, end);
      kept += end - begin;
      if (loss_scale != nullptr && !All(IsFinite(part)).Item<bool>()) told[0] = 1;
      if (!clips) continue;
      const NDArray norm = Cast(Norm2(part), DType::kFloat64);
      told[1] += norm.Item<double>() * norm.Item<double>();
    }
    communicator_.AllReduce(absl::MakeSpan(told), "gradients' norm");
    const auto diverged = [&](const char* what) {
      throw DivergedError(absl::StrCat(kName, ": ", what, " behind step ", trainer_.steps(),
                                       ": training has diverged"));
    };
    double scale = 1;
    if (loss_scale != nullptr) {
      scale = 1 / loss_scale->scale();
      if (!loss_scale->Observe(told[0] == 0)) {
        if (!loss_scale->has_diverged()) return false;
        diverged("gradients are not finite at the least loss scale");
      }
    }
    if (clips) {
      // As Updater has it, PyTorch's small number too.
      const double norm = std::sqrt(told[1]) * scale;
      if (std::isnan(norm)) diverged("the norm of the gradients is not a number");
      scale *= std::min(1.0, clipping.limit / (norm + 1e-6));
    }
    updater.set_gradient_scale(std::max(scale, std::numeric_limits<double>::min()));
  }
  if (sharded_ != nullptr) {
    updater.ApplyToKept(sharded_->gradients(), sharded_->values());
    return true;
  }
  updater.Apply(network.gradients(), network.parameters());
  buckets_.GatherParts(network.parameters());
  return true;
}

}  // namespace tidepool::nn
