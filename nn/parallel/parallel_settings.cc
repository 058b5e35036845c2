// ParallelWrapper: replicas follow what their trainer is set to.
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/parallel/parallel_worker.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"

namespace tidepool::nn {

// Each worker's step keeps what the network's would: a step budget is one of each worker.
void ParallelWrapper::FollowPlan() {
  const Activations* const plan = trainer_.network().activations();
  for (int worker = 0; worker < config_.workers; ++worker) {
    Network& its = network(worker);
    if (&its == &trainer_.network()) continue;
    const Activations* const had = its.activations();
    if (plan == nullptr) {
      if (had != nullptr) its.SetActivationPlan({});
    } else if (had == nullptr || had->plan != plan->plan || had->file != plan->file) {
      its.SetActivationPlan(plan->plan, plan->file);
    }
  }
}

// One that was put in the old one's place: the workers have ones like it, whose state is copied.
void ParallelWrapper::FollowUpdater() {
  const Updater& updater = trainer_.updater();
  updater.CheckKeepsAll(kParallelWrapper);
  for (const auto& replica : replicas_) {
    if (replica->trainer->updater().config() == updater.config()) continue;
    replica->trainer.emplace(replica->network, updater.config());
    has_fitted_ = false;
  }
}

// What workers compute by is the trainer's, whenever it was set.
void ParallelWrapper::FollowSettings() {
  const Network& whole = trainer_.network();
  for (int worker = 0; worker < config_.workers; ++worker) {
    Network& its = network(worker);
    if (&its != &whole) its.set_loss(whole.loss_function());
  }
  if (config_.training == ParallelTraining::kGradientSharing) return;
  const Updater& updater = trainer_.updater();
  const LossScale* const scale = trainer_.loss_scale();
  for (const auto& replica : replicas_) {
    Trainer& its = *replica->trainer;
    if (its.updater().config() != updater.config()) {
      ThrowFailedPrecondition(absl::StrCat(
          kParallelWrapper, ": the updater [", updater.config().ToString(),
          "] is another one than the pass began with, expected ", "that between passes"));
    }
    if (its.updater().groups() != updater.groups()) its.updater().SetGroups(updater.groups());
    if (scale == nullptr) {
      its.updater().set_gradient_scale(updater.gradient_scale());
    } else if (its.loss_scale() == nullptr || its.loss_scale()->config() != scale->config()) {
      its.set_loss_scale(scale->config());
      *its.loss_scale() = *scale;
    }
  }
}

void ParallelWrapper::CopyToReplicas() {
  const InPlace in_place;
  for (const auto& replica : replicas_) {
    NDArray arrays = replica->network.arrays();
    CopyInto(trainer_.network().arrays(), arrays);
    Updater &from = trainer_.updater(), &to = replica->trainer->updater();
    to.set_steps(from.steps());
    to.set_epoch(from.epoch());
    // Those of workers are in no checkpoint.
    if (trainer_.loss_scale() != nullptr) *replica->trainer->loss_scale() = *trainer_.loss_scale();
    if (!config_.average_updaters && has_fitted_) continue;
    const std::vector<const NDArray*> source = from.state(), target = to.state();
    for (size_t i = 0; i < source.size(); ++i) {
      NDArray copy = *target[i];
      CopyInto(*source[i], copy);
    }
  }
  has_fitted_ = true;
}

}  // namespace tidepool::nn
