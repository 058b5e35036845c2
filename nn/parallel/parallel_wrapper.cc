#include "tidepool/nn/parallel/parallel_wrapper.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/error_context.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/parallel/parallel_worker.h"
#include "tidepool/nn/parallel/worker_group.h"

namespace tidepool::nn {
namespace {

constexpr const char* kName = kParallelWrapper;

// Parts begin at cache lines: no line is written by two workers.
constexpr int64_t kPartAlignment = 16;

// What layers of a worker draw: other numbers than any other worker's.
uint64_t SeedOf(int worker) { return 0x9E3779B97F4A7C15u * static_cast<uint64_t>(worker); }

const NDArray& FeaturesOf(const Batch& batch) { return batch.features; }
const NDArray& FeaturesOf(const MultiDataSet& set) {
  static const auto* const kNone = new NDArray();
  return set.features.empty() ? *kNone : set.features[0];
}

// Says in front of what `function` throws which batch of the pass it was of. Workers, or sources, may
// throw the same one again.
template <typename Function>
auto OfBatch(const std::string& batch, Function function) {
  try {
    return function();
  } catch (...) {
    std::rethrow_exception(WithContext<DivergedError>(std::current_exception(), batch));
  }
}
std::string NumberOf(int64_t batch) { return absl::StrCat("batch ", batch); }

// Of which the first is that batch of the pass.
template <typename Set>
void CheckBatches(const std::vector<Set>& batches, int64_t first) {
  for (size_t i = 0; i < batches.size(); ++i) {
    const NDArray& features = FeaturesOf(batches[i]);
    if (features.is_defined() && (features.rank() == 0 || features.dim(0) > 0)) continue;
    ThrowInvalidArgument(absl::StrCat(
        kName, ": ", NumberOf(first + static_cast<int64_t>(i)), " has ",
        features.is_defined() ? "features " + features.shape().ToString() : "no features",
        ", expected those of at least one example"));
  }
}

NDArray PartOfArray(const NDArray& flat, std::pair<int64_t, int64_t> part) {
  return flat.Slice(0, part.first, part.second);
}

}  // namespace

ParallelWrapper::ParallelWrapper(Trainer& trainer, const ParallelWrapperConfig& config)
    : trainer_(trainer), config_(config), layout_(trainer.network().layout_version()) {
  if (config.averaging_frequency < 1 || config.prefetch < 1) {
    ThrowInvalidArgument(absl::StrCat(kName, ": averaging_frequency ", config.averaging_frequency,
                                      " and prefetch ", config.prefetch,
                                      ", expected at least 1 of each"));
  }
  if (trainer.graph_stats() != nullptr) {
    ThrowUnimplemented(absl::StrCat(
        kName,
        ": the trainer's steps are captured (set_graphs), expected a trainer without graphs"));
  }
  trainer.CheckLayout();
  trainer.updater().CheckKeepsAll(kName);
  group_ = std::make_unique<WorkerGroup>(kName, config.workers, config.threads_of_worker);
  if (config.prefetch > AsyncOptions::kMostSlots / config.workers - 1) {
    ThrowInvalidArgument(absl::StrCat(
        kName, ": prefetch ", config.prefetch, " for ", config.workers,
        " workers, expected (prefetch + 1) * workers up to ", AsyncOptions::kMostSlots));
  }
  Network& network = trainer.network();
  if (config.workspace_mode.has_value()) network.set_training_workspace(*config.workspace_mode);
  const bool shares = config.training == ParallelTraining::kGradientSharing;
  for (int worker = 1; worker < config.workers; ++worker) {
    auto made = std::make_unique<Worker>(network.NewReplica(
        shares ? Network::ReplicaParameters::kShared : Network::ReplicaParameters::kOwn,
        network.seed() ^ SeedOf(worker)));
    if (!shares) made->trainer.emplace(made->network, trainer.updater().config());
    replicas_.push_back(std::move(made));
  }
  if (shares && network.beside().is_defined()) {
    first_ = std::make_unique<Worker>(
        network.NewReplica(Network::ReplicaParameters::kShared, network.seed()));
  }
}

ParallelWrapper::~ParallelWrapper() = default;

Network& ParallelWrapper::network(int worker) {
  if (worker < 0 || worker >= config_.workers) {
    ThrowInvalidArgument(
        absl::StrCat(kName, ": worker ", worker, ", expected 0 to ", config_.workers - 1));
  }
  if (worker > 0) return replicas_[static_cast<size_t>(worker - 1)]->network;
  return first_ != nullptr ? first_->network : trainer_.network();
}

std::pair<int64_t, int64_t> ParallelWrapper::PartOf(int worker, int64_t count) const {
  const int64_t lines = (count + kPartAlignment - 1) / kPartAlignment;
  const auto begin_of = [&](int64_t w) {
    return std::min(count, lines * w / config_.workers * kPartAlignment);
  };
  return {begin_of(worker), begin_of(worker + 1)};
}

template <typename Set>
ParallelPass ParallelWrapper::FitAhead(Iterator<Set>& batches) {
  if (fitting_) ThrowFailedPrecondition(absl::StrCat(kName, ": Fit while a pass is under way"));
  AsyncOptions options{.prefetch = config_.prefetch * config_.workers,
                       .kept = config_.workers,
                       .device = trainer_.network().device(),
                       .name = kName,
                       .first_epoch = passes_++};
  if (!batches.allows_prefetch()) {
    int64_t batch = 0;
    return FitRounds<Set>([&] {
      return OfBatch(absl::StrCat(kName, ": ", NumberOf(batch++)), [&] { return batches.Next(); });
    });
  }
  if (!ring_.has_value()) ring_.emplace(options.name, options.RingConfig(), options.device);
  options.ring = &*ring_;
  AsyncIterator<Set> ahead(batches, options);
  return FitRounds<Set>([&] { return ahead.Next(); });
}
template ParallelPass ParallelWrapper::FitAhead(DataSetIterator& batches);
template ParallelPass ParallelWrapper::FitAhead(MultiDataSetIterator& batches);

void ParallelWrapper::CheckLayout() const {
  if (trainer_.network().layout_version() != layout_) {
    ThrowFailedPrecondition(
        absl::StrCat(kName, ": parameters of network [", trainer_.network().name(),
                     "] were frozen or not since it was made, expected one made afterwards"));
  }
}

template <typename Set>
ParallelPass ParallelWrapper::FitRounds(absl::FunctionRef<std::optional<Set>()> next) {
  CheckLayout();
  fitting_ = true;
  const absl::Cleanup done = [&] { fitting_ = false; };
  for (int worker = 0; worker < config_.workers; ++worker)
    network(worker).set_step(trainer_.network().step());
  FollowPlan();
  const bool averages = config_.training == ParallelTraining::kParameterAveraging;
  if (averages) {
    FollowUpdater();
    FollowSettings();
    CopyToReplicas();
  }
  Pass pass;
  try {
    while (Round(next, pass)) {
    }
  } catch (...) {
    try {
      if (averages) Average(pass);
    } catch (const Error&) {
      // What ended the pass is on its way.
    }
    throw;
  }
  if (averages) Average(pass);
  if (pass.sums.examples > 0) pass.sums.loss /= static_cast<double>(pass.sums.examples);
  return pass.sums;
}

template ParallelPass ParallelWrapper::FitRounds(absl::FunctionRef<std::optional<Batch>()> next);
template ParallelPass ParallelWrapper::FitRounds(
    absl::FunctionRef<std::optional<MultiDataSet>()> next);

template <typename Set>
bool ParallelWrapper::Round(absl::FunctionRef<std::optional<Set>()> next, Pass& pass) {
  std::vector<Set> batches;
  while (batches.size() < static_cast<size_t>(config_.workers)) {
    std::optional<Set> batch = next();
    if (!batch.has_value()) break;
    batches.push_back(std::move(*batch));
  }
  if (batches.empty()) return false;
  CheckLayout();  // a listener, or who makes batches, may have changed it
  FollowSettings();
  const int64_t first = pass.sums.batches;
  CheckBatches(batches, first);
  ParallelRound round;
  round.batches = static_cast<int64_t>(batches.size());
  for (const Set& batch : batches) round.examples += batch.size();
  double sum;  // of the examples' losses
  if (config_.training == ParallelTraining::kGradientSharing) {
    sum = Share(batches, first, round);
  } else {
    pass.took_part = std::max(pass.took_part, static_cast<int>(batches.size()));
    sum = Step(batches, first, round);
    round.averaged = ++pass.rounds_since == config_.averaging_frequency;
    if (round.averaged) Average(pass);
  }
  pass.sums.batches += round.batches;
  pass.sums.examples += round.examples;
  pass.sums.loss += sum;
  round.round = ++pass.sums.rounds;
  round.loss = sum / static_cast<double>(round.examples);
  const bool was_full = batches.size() == static_cast<size_t>(config_.workers);
  batches.clear();  // what they took is free for the next ones
  if (listener_) listener_(round);
  return was_full;
}

// ---- Sharing gradients ----

template <typename Set>
double ParallelWrapper::Share(std::vector<Set>& batches, int64_t first, ParallelRound& round) {
  const int workers = static_cast<int>(batches.size());
  Network& whole = trainer_.network();
  const double before = whole.loss_scale();
  const double scale = trainer_.loss_scale() != nullptr ? trainer_.loss_scale()->scale() : before;
  std::vector<double> losses(batches.size());
  const absl::Cleanup restore = [&] {
    for (int worker = 0; worker < workers; ++worker) network(worker).set_loss_scale(before);
  };
  // What fails is done again, by the same random numbers.
  absl::Cleanup undo = [&, step = whole.step()] {
    for (int worker = 0; worker < config_.workers; ++worker) network(worker).set_step(step);
    whole.set_step(step);
  };
  group_->Run(workers, [&](int worker) {
    Network& its = network(worker);
    const Set& batch = batches[static_cast<size_t>(worker)];
    // Of the mean of all examples of the round.
    const double examples = static_cast<double>(batch.size());
    its.set_loss_scale(scale * examples / static_cast<double>(round.examples));
    if (first_ != nullptr) {
      NDArray beside = its.beside();
      CopyInto(whole.beside(), beside);
    }
    const WorkspaceScope scope(its.training_workspace());
    losses[static_cast<size_t>(worker)] = OfBatch(
        NumberOf(first + worker), [&] { return its.ComputeGradients(InputsOf(batch)) * examples; });
  });
  AddGradients(workers);
  round.updated = trainer_.Update();
  if (round.updated) AverageBeside(workers);  // else they stay as they were
  if (!round.updated) round.skipped = round.batches;
  whole.set_step(network(0).step());
  std::move(undo).Cancel();
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum;
}

void ParallelWrapper::AddGradients(int workers) {
  const NDArray& gradients = trainer_.network().gradients();
  if (workers == 1 && first_ == nullptr) return;
  group_->Run(config_.workers, [&](int worker) {
    const InPlace in_place;
    const auto part = PartOf(worker, gradients.NumElements());
    if (part.first == part.second) return;
    NDArray sum = PartOfArray(gradients, part);
    if (first_ != nullptr) CopyInto(PartOfArray(network(0).gradients(), part), sum);
    for (int other = 1; other < workers; ++other)
      AddInto(sum, PartOfArray(network(other).gradients(), part), sum);
  });
}

void ParallelWrapper::AverageBeside(int workers) {
  if (first_ == nullptr) return;
  const InPlace in_place;
  NDArray mean = trainer_.network().beside();
  CopyInto(network(0).beside(), mean);
  for (int other = 1; other < workers; ++other) AddInto(mean, network(other).beside(), mean);
  if (workers > 1) mean *= 1.0 / workers;
}

// ---- Averaging parameters ----

template <typename Set>
double ParallelWrapper::Step(std::vector<Set>& batches, int64_t first, ParallelRound& round) {
  std::vector<double> losses(batches.size());
  std::vector<int64_t> skipped(batches.size());
  group_->Run(static_cast<int>(batches.size()), [&](int worker) {
    Set& batch = batches[static_cast<size_t>(worker)];
    const double examples = static_cast<double>(batch.size());
    Trainer& trainer =
        worker == 0 ? trainer_ : *replicas_[static_cast<size_t>(worker - 1)]->trainer;
    const int64_t before = trainer.steps();
    losses[static_cast<size_t>(worker)] = OfBatch(NumberOf(first + worker), [&] {
      return trainer.Step([&] { return std::move(batch); }) * examples;
    });
    skipped[static_cast<size_t>(worker)] = trainer.steps() == before ? 1 : 0;
  });
  round.skipped = std::accumulate(skipped.begin(), skipped.end(), int64_t{0});
  round.updated = round.skipped < round.batches;
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum;
}

void ParallelWrapper::Average(Pass& pass) {
  // Workers that had no batch since the last time take the others' mean and give nothing.
  const int workers = std::exchange(pass.took_part, 0);
  pass.rounds_since = 0;
  if (workers == 0) return;
  const auto average = [&](absl::FunctionRef<NDArray(int worker)> flat_of) {
    const NDArray first = flat_of(0);
    if (!first.is_defined()) return;
    group_->Run(config_.workers, [&](int worker) {
      const InPlace in_place;
      const auto part = PartOf(worker, first.NumElements());
      if (part.first == part.second) return;
      NDArray mean = PartOfArray(first, part);
      if (workers > 1) {
        for (int other = 1; other < workers; ++other)
          AddInto(mean, PartOfArray(flat_of(other), part), mean);
        mean *= 1.0 / workers;
      }
      for (int other = 1; other < config_.workers; ++other) {
        NDArray copy = PartOfArray(flat_of(other), part);
        CopyInto(mean, copy);
      }
    });
  };
  average([&](int worker) { return network(worker).parameters(); });
  average([&](int worker) { return network(worker).beside(); });
  if (!config_.average_updaters) return;
  for (size_t i = 0; i < trainer_.updater().state().size(); ++i) {
    average([&](int worker) {
      Updater& updater = worker == 0
                             ? trainer_.updater()
                             : replicas_[static_cast<size_t>(worker - 1)]->trainer->updater();
      return updater.state()[i]->Reshape({updater.state()[i]->NumElements()});
    });
  }
}

}  // namespace tidepool::nn
