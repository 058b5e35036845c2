// Trainer::Fit: epochs of iterators.
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/error_context.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

// What is no batch is refused by the step.
int64_t ExamplesOf(const NDArray& features) {
  return features.is_defined() && features.rank() > 0 ? features.dim(0) : 0;
}
int64_t ExamplesOf(const Batch& batch) { return ExamplesOf(batch.features); }
int64_t ExamplesOf(const MultiDataSet& set) {
  return set.features.empty() ? 0 : ExamplesOf(set.features[0]);
}

// In the listener's place while it is called.
struct ListenerUnderWay {
  void operator()(const TrainedStep&) const {}
};

}  // namespace

// False: there are no more.
template <typename Set>
bool Trainer::FitOne(Iterator<Set>& batches, TrainingPass& pass) {
  const int64_t skipped = loss_scale_.has_value() ? loss_scale_->skipped() : 0;
  TrainedStep step;
  try {
    // Of an iterator that goes by index, no cycle begins for what is not there.
    std::optional<int64_t> claimed;
    if (batches.goes_by_index() && !(claimed = batches.Claim()).has_value()) return false;
    const std::optional<double> loss = StepOf<Set>([&] {
      std::optional<Set> set =
          claimed.has_value() ? batches.Make(*claimed, std::stop_token()) : batches.Next();
      if (set.has_value()) step.examples = ExamplesOf(*set);
      return set;
    });
    if (!loss.has_value()) return false;
    step.loss = *loss;
  } catch (...) {
    // A source may throw the same one again.
    std::rethrow_exception(WithContext<DivergedError>(
        std::current_exception(), absl::StrCat("trainer: batch ", pass.batches)));
  }
  step.updated = !loss_scale_.has_value() || loss_scale_->skipped() == skipped;
  step.batches = ++pass.batches;
  pass.examples += step.examples;
  pass.loss += step.loss * static_cast<double>(step.examples);
  if (!listener_) return true;
  // It may set another one, or none, and goes only when it has returned.
  std::function<void(const TrainedStep&)> listener = std::exchange(listener_, ListenerUnderWay());
  const absl::Cleanup put_back = [&] {
    if (listener_.target<ListenerUnderWay>() != nullptr) listener_ = std::move(listener);
  };
  listener(step);
  return true;
}

template <typename Set>
TrainingPass Trainer::FitOn(Iterator<Set>& batches) {
  if (fitting_) ThrowFailedPrecondition("trainer: Fit while a pass is under way");
  fitting_ = true;
  const absl::Cleanup done = [this] { fitting_ = false; };
  TrainingPass pass;
  while (FitOne(batches, pass)) {
  }
  if (pass.examples > 0) pass.loss /= static_cast<double>(pass.examples);
  return pass;
}

template TrainingPass Trainer::FitOn(DataSetIterator& batches);
template TrainingPass Trainer::FitOn(MultiDataSetIterator& batches);

}  // namespace tidepool::nn
