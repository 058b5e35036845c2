#include "tidepool/nn/training/updater.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/kernel/update_numbers.h"
#include "tidepool/ndarray/ops/updaters.h"

namespace tidepool::nn {

UpdaterConfig UpdaterConfig::Of(UpdaterKind kind) {
  UpdaterConfig config;
  config.kind = kind;
  if (kind == UpdaterKind::kSgd) config.learning_rate = 0.1;
  if (kind == UpdaterKind::kNesterovs) config.learning_rate = 0.02;
  if (kind == UpdaterKind::kAdamW) config.weight_decay = 0.01;
  return config;
}

UpdaterKind ParseUpdater(const std::string& name) {
  if (name == "sgd") return UpdaterKind::kSgd;
  if (name == "nesterovs") return UpdaterKind::kNesterovs;
  if (name == "adam") return UpdaterKind::kAdam;
  if (name == "adamw") return UpdaterKind::kAdamW;
  ThrowInvalidArgument(
      absl::StrCat("updater is \"", name, "\", expected sgd, nesterovs, adam or adamw"));
}

Updater::Updater(const UpdaterConfig& config, const Shape& shape, Device device, DType dtype)
    : config_(config), device_(device), dtype_(dtype) {
  auto in_unit = [](double x) { return x >= 0 && x < 1; };
  if (!(config.learning_rate > 0) || !in_unit(config.momentum) || !in_unit(config.beta1) ||
      !in_unit(config.beta2) || !(config.epsilon > 0) || !(config.l2 >= 0) || config.decay_steps < 0) {
    ThrowInvalidArgument(absl::StrCat(
        "updater: learning_rate ", config.learning_rate, ", momentum ", config.momentum,
        ", beta1 ", config.beta1, ", beta2 ", config.beta2, ", epsilon ", config.epsilon, ", l2 ",
        config.l2, ", decay_steps ", config.decay_steps, "; expected rate > 0, momentum and betas in "
        "[0, 1), epsilon > 0, l2 and decay_steps >= 0"));
  }
  const bool decays = config.kind == UpdaterKind::kAdamW;
  if (!(config.weight_decay >= 0) || (config.weight_decay != 0 && !decays)) {
    ThrowInvalidArgument(absl::StrCat("updater: weight_decay ", config.weight_decay,
                                      "; expected at least 0, and 0 of other kinds than adamw"));
  }
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    ThrowInvalidArgument(absl::StrCat("updater: parameters of ", DTypeName(dtype), ", expected f32 or f64"));
  }
  const MemoryOwnerScope owner("updater");
  const Place place = Place::On(device);
  if (config.kind != UpdaterKind::kSgd) first_ = Zeros(shape, dtype, place);
  if (config.kind == UpdaterKind::kAdam || decays) second_ = Zeros(shape, dtype, place);
}

double Updater::learning_rate() const {
  if (config_.decay_steps == 0) return config_.learning_rate;
  constexpr double kLast = 0.01;
  const double done = static_cast<double>(std::min(steps_, config_.decay_steps)) /
                      static_cast<double>(config_.decay_steps);
  return config_.learning_rate * (kLast + (1 - kLast) * 0.5 * (1 + std::cos(M_PI * done)));
}

void Updater::Queue(const NDArray& gradients, NDArray& parameters, const NDArray* numbers) {
  switch (config_.kind) {
    case UpdaterKind::kSgd:
      return SgdUpdate(gradients, parameters, Sgd(), numbers);
    case UpdaterKind::kNesterovs:
      return NesterovsUpdate(gradients, parameters, first_, Nesterovs(), numbers);
    case UpdaterKind::kAdam:
    case UpdaterKind::kAdamW:
      return AdamUpdate(gradients, parameters, first_, second_, Adam(), numbers);
  }
}

void Updater::Apply(const NDArray& gradients, NDArray& parameters) {
  Queue(gradients, parameters, nullptr);
  Advance();
}

void Updater::SetNumbers() {
  if (!numbers_.is_defined()) {
    const MemoryOwnerScope owner("updater");
    const HandlesOwnScope handles;
    numbers_ = Empty({kUpdateNumbers}, dtype_, Place::On(device_));
  }
  const UpdateNumbers next = config_.kind == UpdaterKind::kSgd         ? NumbersOf(Sgd())
                             : config_.kind == UpdaterKind::kNesterovs ? NumbersOf(Nesterovs())
                                                                       : NumbersOf(Adam());
  const auto write = [&](auto zero) {
    using T = decltype(zero);
    HostView<T> view(numbers_, ViewContents::kOverwritten);
    view[0] = static_cast<T>(next.rate);
    view[1] = static_cast<T>(next.epsilon);
    view[2] = static_cast<T>(next.keep);
  };
  dtype_ == DType::kFloat64 ? write(0.0) : write(0.0f);
}

void Updater::ApplyNumbers(const NDArray& gradients, NDArray& parameters) {
  Queue(gradients, parameters, &numbers_);
}

std::vector<const NDArray*> Updater::state() const {
  std::vector<const NDArray*> arrays;
  for (const NDArray* array : {&first_, &second_}) {
    if (array->is_defined()) arrays.push_back(array);
  }
  return arrays;
}

}  // namespace tidepool::nn
