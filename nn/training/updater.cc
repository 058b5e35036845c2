#include "tidepool/nn/training/updater.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/updaters.h"

namespace tidepool::nn {

UpdaterConfig UpdaterConfig::Of(UpdaterKind kind) {
  UpdaterConfig config;
  config.kind = kind;
  if (kind == UpdaterKind::kSgd) config.learning_rate = 0.1;
  if (kind == UpdaterKind::kNesterovs) config.learning_rate = 0.02;
  return config;
}

UpdaterKind ParseUpdater(const std::string& name) {
  if (name == "sgd") return UpdaterKind::kSgd;
  if (name == "nesterovs") return UpdaterKind::kNesterovs;
  if (name == "adam") return UpdaterKind::kAdam;
  ThrowInvalidArgument(
      absl::StrCat("updater is \"", name, "\", expected sgd, nesterovs or adam"));
}

Updater::Updater(const UpdaterConfig& config, const Shape& shape, Device device)
    : config_(config) {
  auto in_unit = [](double x) { return x >= 0 && x < 1; };
  if (!(config.learning_rate > 0) || !in_unit(config.momentum) || !in_unit(config.beta1) ||
      !in_unit(config.beta2) || !(config.epsilon > 0) || !(config.l2 >= 0) || config.decay_steps < 0) {
    ThrowInvalidArgument(absl::StrCat(
        "updater: learning_rate ", config.learning_rate, ", momentum ", config.momentum,
        ", beta1 ", config.beta1, ", beta2 ", config.beta2, ", epsilon ", config.epsilon, ", l2 ",
        config.l2, ", decay_steps ", config.decay_steps, "; expected rate > 0, momentum and betas in "
        "[0, 1), epsilon > 0, l2 and decay_steps >= 0"));
  }
  const MemoryOwnerScope owner("updater");
  const Place place = Place::On(device);
  if (config.kind != UpdaterKind::kSgd) first_ = Zeros(shape, DType::kFloat32, place);
  if (config.kind == UpdaterKind::kAdam) second_ = Zeros(shape, DType::kFloat32, place);
}

double Updater::learning_rate() const {
  if (config_.decay_steps == 0) return config_.learning_rate;
  constexpr double kLast = 0.01;
  const double done = static_cast<double>(std::min(steps_, config_.decay_steps)) /
                      static_cast<double>(config_.decay_steps);
  return config_.learning_rate * (kLast + (1 - kLast) * 0.5 * (1 + std::cos(M_PI * done)));
}

void Updater::Apply(const NDArray& gradients, NDArray& parameters) {
  const double rate = learning_rate();
  switch (config_.kind) {
    case UpdaterKind::kSgd:
      SgdUpdate(gradients, parameters, {rate, config_.l2});
      break;
    case UpdaterKind::kNesterovs:
      NesterovsUpdate(gradients, parameters, first_,
                      {rate, config_.momentum, config_.l2});
      break;
    case UpdaterKind::kAdam:
      AdamUpdate(gradients, parameters, first_, second_,
                 {rate, config_.beta1, config_.beta2, config_.epsilon, config_.l2, steps_ + 1});
      break;
  }
  ++steps_;
}

std::vector<const NDArray*> Updater::state() const {
  std::vector<const NDArray*> arrays;
  for (const NDArray* array : {&first_, &second_}) {
    if (array->is_defined()) arrays.push_back(array);
  }
  return arrays;
}

}  // namespace tidepool::nn
