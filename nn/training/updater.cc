#include "tidepool/nn/training/updater.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/update_numbers.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/ops/updaters.h"

namespace tidepool::nn {
namespace {

// PyTorch's clip_grad_norm_ adds it to the norm, so that there is a factor for a norm of 0.
constexpr double kOfNorm = 1e-6;

// Where the members of UpdateNumbers lie.
constexpr int kScaleNumber = 3, kSkipNumber = 4;

// That number of each run.
NDArray NumberOfRuns(const NDArray& numbers, int number) {
  return numbers.rank() == 1 ? numbers.Slice(0, number, number + 1) : numbers.Index(1, number);
}

NDArray Flat(const NDArray& array) {
  return array.rank() == 1 ? array : array.Reshape({array.NumElements()});
}

}  // namespace

Updater::Updater(const UpdaterConfig& config, const Shape& shape, Device device, DType dtype,
                 std::vector<ParameterGroup> groups, State state)
    : config_(config), device_(device), dtype_(dtype), elements_(shape.NumElements()) {
  config.Check();
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) {
    ThrowInvalidArgument(
        absl::StrCat("updater: parameters of ", DTypeName(dtype), ", expected f32 or f64"));
  }
  SetGroups(std::move(groups));
  if (state == State::kNone) return;
  const MemoryOwnerScope owner("updater");
  const Place place = Place::On(device);
  if (state_arrays() > 0) first_ = Zeros(shape, dtype, place);
  if (state_arrays() > 1) second_ = Zeros(shape, dtype, place);
}

int Updater::state_arrays() const {
  switch (config_.kind) {
    case UpdaterKind::kSgd:
      return 0;
    case UpdaterKind::kAdam:
    case UpdaterKind::kAdamW:
      return 2;
    default:
      return 1;
  }
}

bool Updater::ClipsByNorm() const {
  return config_.clipping.kind == ClippingKind::kNormOfEach ||
         (config_.clipping.kind == ClippingKind::kGlobalNorm && keeps_all_);
}

double Updater::learning_rate() const {
  const bool by_epochs = config_.schedule.unit == ScheduleUnit::kEpochs;
  return config_.learning_rate * config_.schedule.Factor(by_epochs ? epoch_ : steps_);
}

void Updater::set_gradient_scale(double scale) {
  if (!(scale > 0) || std::isinf(scale)) {
    ThrowInvalidArgument(absl::StrCat("updater: gradient scale ", scale, ", expected more than 0"));
  }
  gradient_scale_ = scale;
}

// visit(attributes) with those of the next step and a run.
template <typename Visit>
void Updater::WithAttributes(const ParameterGroup& run, Visit visit) const {
  const UpdaterConfig& c = config_;
  const double rate = learning_rate() * run.rate, l2 = run.decays ? c.l2 : 0,
               l1 = run.decays ? c.l1 : 0;
  const double clip = c.clipping.kind == ClippingKind::kValue ? c.clipping.limit : 0;
  switch (c.kind) {
    case UpdaterKind::kSgd:
      return visit(SgdAttributes{rate, l2, l1, clip});
    case UpdaterKind::kNesterovs:
      return visit(NesterovsAttributes{rate, c.momentum, l2, l1, clip});
    case UpdaterKind::kAdaGrad:
      return visit(AdaGradAttributes{rate, c.epsilon, l2, l1, clip});
    case UpdaterKind::kRmsProp:
      return visit(RmsPropAttributes{rate, c.decay, c.epsilon, l2, l1, clip});
    case UpdaterKind::kAdam:
    case UpdaterKind::kAdamW:
      return visit(AdamAttributes{rate, c.beta1, c.beta2, c.epsilon, l2, steps_ + 1,
                                  run.decays ? c.weight_decay : 0, l1, clip});
  }
}

void Updater::Queue(size_t number, const NDArray& gradients, NDArray& parameters,
                    const NDArray* numbers) {
  const ParameterGroup& run = runs_[number];
  const auto part = [&](const NDArray& array, int64_t begin) {
    return is_one_run_ || !array.is_defined()
               ? array
               : Flat(array).Slice(0, begin, begin + run.end - run.begin);
  };
  const int64_t begin = applies_to_kept_ ? state_begins_[number] : run.begin;
  const NDArray g = part(gradients, begin);
  NDArray p = part(parameters, begin), first = part(first_, state_begins_[number]),
          second = part(second_, state_begins_[number]);
  Update(run, g, p, &first, &second, numbers);
}

void Updater::Update(const ParameterGroup& run, const NDArray& g, NDArray& p, NDArray* first,
                     NDArray* second, const NDArray* numbers) const {
  WithAttributes(run, [&](const auto& a) {
    using A = std::decay_t<decltype(a)>;
    if constexpr (std::is_same_v<A, SgdAttributes>) SgdUpdate(g, p, a, numbers);
    if constexpr (std::is_same_v<A, NesterovsAttributes>) NesterovsUpdate(g, p, *first, a, numbers);
    if constexpr (std::is_same_v<A, AdaGradAttributes>) AdaGradUpdate(g, p, *first, a, numbers);
    if constexpr (std::is_same_v<A, RmsPropAttributes>) RmsPropUpdate(g, p, *first, a, numbers);
    if constexpr (std::is_same_v<A, AdamAttributes>) AdamUpdate(g, p, *first, *second, a, numbers);
  });
}

void Updater::ApplyTo(const ParameterGroup& as, const NDArray& gradients, NDArray& parameters,
                      NDArray* first, NDArray* second, const NDArray* norm) const {
  const ClippingKind clipping = config_.clipping.kind;
  const bool by_all = clipping == ClippingKind::kGlobalNorm;
  if ((by_all && norm == nullptr) || gradient_scale_ != 1) {
    ThrowUnimplemented(absl::StrCat(
        "updater: parameters that come one after the other, with gradients ",
        gradient_scale_ != 1 ? "of a scaled loss" : "clipped by the norm of all of them",
        ", expected no clipping, that of values, that by the norm of each, or the norm of all"));
  }
  if (as.frozen) return;
  if (!by_all && clipping != ClippingKind::kNormOfEach)
    return Update(as, gradients, parameters, first, second, nullptr);
  NDArray numbers({kUpdateNumbers}, dtype_, Place::CurrentOn(device_)),
      norms({1}, dtype_, Place::CurrentOn(device_));
  WriteNumbers({&as, 1}, numbers);
  if (!by_all) {
    NDArray own = norms.Index(0, 0);
    Norm2Into(gradients, {}, own);
  }
  ScaleByNorms(by_all ? *norm : norms, numbers);
  Update(as, gradients, parameters, first, second, &numbers);
}

namespace {

// Beyond them is no run of training, and there is room to count on.
int64_t Counter(const char* what, int64_t count) {
  constexpr int64_t kMost = int64_t{1} << 53;
  if (count >= 0 && count <= kMost) return count;
  ThrowInvalidArgument(absl::StrCat("updater: ", what, " ", count, ", expected 0 to ", kMost));
}

}  // namespace

void Updater::set_steps(int64_t steps) { steps_ = Counter("steps", steps); }
void Updater::set_epoch(int64_t epoch) { epoch_ = Counter("epoch", epoch); }

void Updater::QueueRuns(const NDArray& gradients, NDArray& parameters, const NDArray* numbers) {
  for (size_t r = 0; r < runs_.size(); ++r) {
    NDArray row;
    if (numbers != nullptr)
      row = numbers->rank() == 1 ? *numbers : numbers->Index(0, static_cast<int64_t>(r));
    const auto queue = [&] {
      Queue(r, gradients, parameters, numbers != nullptr ? &row : nullptr);
    };
    try {
      queue();
    } catch (const DeviceLostError&) {
      throw;
    } catch (const Error&) {
      // What is captured has not happened. Else those before are updated, which nothing takes back, and a step that is done again would
      // update them twice: what was refused once is asked for again.
      if (r == 0 || IsCapturingStep()) throw;
      try {
        queue();
      } catch (Error& error) {
        error.AddContext(absl::StrCat("updater: the parameters of ", r, " of ", runs_.size(),
                                      " groups are updated, those of the others are not"));
        throw;
      }
    }
  }
}

void Updater::Apply(const NDArray& gradients, NDArray& parameters) {
  if (ClipsByNorm() || gradient_scale_ != 1) {
    SetNumbers();
    ApplyNumbers(gradients, parameters);
  } else {
    QueueRuns(gradients, parameters, nullptr);
  }
  Advance();
}

void Updater::ApplyToKept(const NDArray& gradients, NDArray& parameters) {
  if (keeps_all_) ThrowFailedPrecondition("updater: ApplyToKept before KeepOnly");
  applies_to_kept_ = true;
  const absl::Cleanup done = [this] { applies_to_kept_ = false; };
  Apply(gradients, parameters);
}

Shape Updater::NumbersShape() const {
  const auto runs = static_cast<int64_t>(runs_.size());
  return runs == 1 ? Shape{kUpdateNumbers} : Shape{runs, kUpdateNumbers};
}

void Updater::SetNumbers() {
  const auto runs = static_cast<int64_t>(runs_.size());
  if (!numbers_.is_defined()) {
    const MemoryOwnerScope owner("updater");
    const HandlesOwnScope handles;
    numbers_ = Empty(NumbersShape(), dtype_, Place::On(device_));
  }
  if (runs > 0) WriteNumbers(runs_, numbers_);
}

void Updater::WriteNumbers(absl::Span<const ParameterGroup> runs, NDArray& numbers) const {
  const auto write = [&](auto zero) {
    using T = decltype(zero);
    HostView<T> view(numbers, ViewContents::kOverwritten);
    int64_t i = 0;
    for (const ParameterGroup& run : runs) {
      UpdateNumbers next;
      WithAttributes(run, [&](const auto& attributes) { next = NumbersOf(attributes); });
      next.scale = gradient_scale_;
      for (const double number : {next.rate, next.epsilon, next.keep, next.scale, next.skip})
        view[i++] = static_cast<T>(number);
    }
  };
  dtype_ == DType::kFloat64 ? write(0.0) : write(0.0f);
}

void Updater::ClipNumbers(const NDArray& gradients, NDArray& numbers) const {
  NDArray norms({static_cast<int64_t>(runs_.size())}, dtype_, Place::CurrentOn(device_));
  for (size_t r = 0; r < runs_.size(); ++r) {
    NDArray norm = norms.Index(0, static_cast<int64_t>(r));
    Norm2Into(is_one_run_ ? gradients : Flat(gradients).Slice(0, runs_[r].begin, runs_[r].end), {},
              norm);
  }
  if (config_.clipping.kind == ClippingKind::kGlobalNorm && runs_.size() > 1)
    norms = Norm2(norms, {}, true);
  ScaleByNorms(norms, numbers);
}

void Updater::ScaleByNorms(const NDArray& norms, NDArray& numbers) const {
  NDArray scales = NumberOfRuns(numbers, kScaleNumber);
  MultiplyInto(scales, Clip(Reciprocal(norms * scales + kOfNorm) * config_.clipping.limit, 0, 1),
               scales);
}

void Updater::MakeWhatApplyMakes(const NDArray& gradients) const {
  if (runs_.empty() || !ClipsByNorm()) return;
  NDArray numbers(NumbersShape(), dtype_, Place::CurrentOn(device_));
  ClipNumbers(gradients, numbers);
}

void Updater::ApplyNumbers(const NDArray& gradients, NDArray& parameters, const NDArray* skip) {
  if (runs_.empty()) return;
  if (!ClipsByNorm() && skip == nullptr) return QueueRuns(gradients, parameters, &numbers_);
  // A copy, in the current place: what is queued may be replayed with new numbers.
  NDArray numbers = numbers_.CopyTo(Place::CurrentOn(device_));
  if (ClipsByNorm()) ClipNumbers(gradients, numbers);
  if (skip != nullptr) {
    NDArray skips = NumberOfRuns(numbers, kSkipNumber);
    CopyInto(skip->BroadcastTo(skips.shape()), skips);
  }
  QueueRuns(gradients, parameters, &numbers);
}

std::vector<const NDArray*> Updater::state() const {
  std::vector<const NDArray*> arrays;
  for (const NDArray* array : {&first_, &second_}) {
    if (array->is_defined()) arrays.push_back(array);
  }
  return arrays;
}

}  // namespace tidepool::nn
