#include "tidepool/nn/distributed/distributed_trainer.h"

#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/distributed/rank_agreement.h"

namespace tidepool::nn {
namespace {

constexpr char kName[] = "distributed";

}  // namespace

DistributedTrainer::DistributedTrainer(Trainer& trainer, Communicator& communicator,
                                       const DistributedConfig& config)
    : trainer_(trainer),
      communicator_(communicator),
      config_(config),
      layout_(trainer.network().layout_version()),
      buckets_(trainer.network(), communicator, config.bucket_bytes) {
  if (config.ranks < 0 || config.prefetch < 1) {
    ThrowInvalidArgument(absl::StrCat(kName, ": ", config.ranks, " ranks and prefetch ",
                                      config.prefetch,
                                      ", expected 0 (any) or more, and at least 1"));
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
  RankFacts facts = FactsOf(trainer);
  facts.emplace_back("buckets",
                     absl::StrCat(buckets_.count(), " of at most ", config.bucket_bytes, " bytes"));
  CheckFacts(communicator, facts);
  BroadcastState();
}

DistributedTrainer::~DistributedTrainer() = default;

void DistributedTrainer::BroadcastState() {
  Network& network = trainer_.network();
  Updater& updater = trainer_.updater();
  LossScale* const scale = trainer_.loss_scale();
  communicator_.Broadcast(ElementsOf(network.arrays()), 0, "parameters");
  for (const NDArray* const state : updater.state()) {
    communicator_.Broadcast(ElementsOf(state->Reshape({state->NumElements()})), 0,
                            "updater's state");
  }
  std::array<double, 7> numbers = {static_cast<double>(updater.steps()),
                                   static_cast<double>(updater.epoch()),
                                   static_cast<double>(network.step())};
  if (scale != nullptr) {
    numbers[3] = scale->scale();
    numbers[4] = static_cast<double>(scale->good_steps());
    numbers[5] = static_cast<double>(scale->skipped());
    numbers[6] = static_cast<double>(scale->stuck());
  }
  communicator_.Broadcast(absl::MakeSpan(numbers), 0, "counters");
  updater.set_steps(static_cast<int64_t>(numbers[0]));
  updater.set_epoch(static_cast<int64_t>(numbers[1]));
  network.set_step(static_cast<uint64_t>(numbers[2]));
  if (scale != nullptr) {
    scale->Restore(numbers[3], static_cast<int64_t>(numbers[4]), static_cast<int64_t>(numbers[5]),
                   static_cast<int64_t>(numbers[6]));
  }
}

DistributedPass DistributedTrainer::Fit(DataSetIterator& batches) {
  if (fitting_) ThrowFailedPrecondition(absl::StrCat(kName, ": Fit while a pass is under way"));
  fitting_ = true;
  const absl::Cleanup done = [&] { fitting_ = false; };
  AsyncDataSetIterator ahead(
      batches,
      {.prefetch = config_.prefetch, .device = trainer_.network().device(), .name = kName});
  DistributedPass pass;
  while (const std::optional<DistributedStep> step = Step([&] { return ahead.Next(); })) {
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

std::optional<DistributedStep> DistributedTrainer::Step(
    absl::FunctionRef<std::optional<Batch>()> next) {
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
  std::optional<Batch> batch;
  try {
    batch = next();
    if (batch.has_value() && !batch->features.is_defined()) {
      ThrowInvalidArgument(
          absl::StrCat(kName, ": a batch has no features, expected those of at least one example"));
    }
  } catch (...) {
    failure = std::current_exception();
    batch.reset();
  }
  const double examples = batch.has_value() ? static_cast<double>(batch->size()) : 0;
  const bool failed = failure != nullptr;
  begin_.values = {examples, batch.has_value() ? 1.0 : 0.0, failed ? 1.0 : 0.0, failed ? rank : 0};
  communicator_.Start(CollectiveKind::kAllReduce, absl::MakeSpan(begin_.values), begin_.sum,
                      "examples");
  if (!batch.has_value()) {
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
    } else {
      NDArray gradients = network.gradients();
      FillInto(0, gradients);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  batch.reset();
  network.set_step(drawn);
  begin_.sum.Wait();
  if (begin_.values[2] > 0) {
    if (beside.is_defined()) CopyInto(beside_before, beside);
    ThrowOthersFailed(begin_, "make its batch");
  }
  // To the end whatever happened here, as the other ranks do.
  buckets_.BeginRest();
  if (beside.is_defined()) {
    if (examples == 0) FillInto(0, beside);
    communicator_.Start(CollectiveKind::kAllReduce, ElementsOf(beside), beside_,
                        "running averages");
  }
  end_.values = {loss * examples, 0, failure != nullptr ? 1.0 : 0.0, failure != nullptr ? rank : 0};
  communicator_.Start(CollectiveKind::kAllReduce, absl::MakeSpan(end_.values), end_.sum, "losses");
  buckets_.Wait();
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
  step.updated = trainer_.Update();
  network.set_step(drawn + 1);
  if (!order_learned_) LearnOrder();
  return step;
}

void DistributedTrainer::Compute(const Batch& batch, double* loss) {
  Network& network = trainer_.network();
  const double scale =
      trainer_.loss_scale() != nullptr ? trainer_.loss_scale()->scale() : network.loss_scale();
  const NetworkInputs inputs = network.PrepareInputs(InputsOf(batch));
  network.set_gradient_listener(&buckets_);
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

}  // namespace tidepool::nn
