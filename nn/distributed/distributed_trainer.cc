#include "tidepool/nn/distributed/distributed_trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/distributed/distributed_checkpoint.h"
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
      buckets_(
          trainer.network(), communicator, config.bucket_bytes,
          config.shard_updater ? GradientBuckets::Sums::kOwnPart : GradientBuckets::Sums::kWhole) {
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
  facts.emplace_back("updater's state", config.shard_updater ? "in parts" : "whole");
  CheckFacts(communicator, facts);
  BroadcastState();
  if (config.shard_updater) trainer.updater().KeepOnly(buckets_.OwnRanges());
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
  step.updated = config_.shard_updater ? UpdateOwnParts() : trainer_.Update();
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

bool DistributedTrainer::UpdateOwnParts() {
  Network& network = trainer_.network();
  Updater& updater = trainer_.updater();
  LossScale* const loss_scale = trainer_.loss_scale();
  const GradientClipping& clipping = updater.config().clipping;
  const bool clips = clipping.kind == ClippingKind::kGlobalNorm;
  if (loss_scale != nullptr || clips) {
    // Whether some are not finite, and the squares' sum.
    std::array<double, 2> told = {0, 0};
    for (const auto& [begin, end] : buckets_.OwnRanges()) {
      if (begin == end) continue;
      const NDArray part = network.gradients().Slice(0, begin, end);
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
  updater.Apply(network.gradients(), network.parameters());
  buckets_.GatherParts(network.parameters());
  return true;
}

void DistributedTrainer::SaveLatest(CheckpointFolder& folder, const CheckpointNotes& notes) {
  if (!config_.shard_updater) return nn::SaveLatest(communicator_, trainer_, folder, notes);
  const Updater& updater = trainer_.updater();
  std::optional<Updater> whole;
  OnRank0(communicator_, "make room for the updater's state", [&] {
    whole.emplace(updater.config(), trainer_.network().parameters().shape(), Host(),
                  trainer_.network().dtype());
    whole->set_steps(updater.steps());
    whole->set_epoch(updater.epoch());
  });
  GatherState(whole.has_value() ? &*whole : nullptr);
  OnRank0(communicator_, "save the checkpoint",
          [&] { folder.Save(trainer_.network(), *whole, notes, trainer_.loss_scale()); });
}

void DistributedTrainer::GatherState(Updater* whole) {
  const HandlesOwnScope handles;
  const std::vector<const NDArray*> state = trainer_.updater().state();
  for (size_t i = 0; i < state.size(); ++i) {
    int64_t at = 0;  // in this rank's state
    for (int number = buckets_.count() - 1; number >= 0; --number) {
      const auto [begin, end] = buckets_.range(number);
      const auto [mine, mine_end] = PartOf(end - begin, communicator_.rank(), communicator_.size());
      NDArray bucket = Empty({end - begin}, state[i]->dtype(), Place::Heap());
      if (mine < mine_end) {
        NDArray part = bucket.Slice(0, mine, mine_end);
        CopyInto(state[i]->Slice(0, at, at + mine_end - mine), part);
        at += mine_end - mine;
      }
      communicator_.AllGather(ElementsOf(bucket), "updater's state");
      if (whole == nullptr) continue;
      NDArray to = whole->state()[i]->Slice(0, begin, end);
      CopyInto(bucket, to);
    }
  }
}

}  // namespace tidepool::nn
