#include "tidepool/nn/training/listener.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/training/loss_scale.h"

namespace tidepool::nn {
namespace {

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void CheckNotNegative(const char* field, int64_t value) {
  if (value < 0)
    ThrowInvalidArgument(
        absl::StrCat("training watch: ", field, " ", value, ", expected 0 or more"));
}

// "epoch 2 of 10"
std::string EpochOf(const TrainingReport& report) {
  return absl::StrCat("epoch ", report.epoch,
                      report.epochs > 0 ? absl::StrCat(" of ", report.epochs) : "");
}

std::string TimeLeft(const TrainingReport& report) {
  return std::isnan(report.seconds_left) ? ""
                                         : absl::StrFormat(", %.0f s left", report.seconds_left);
}

std::string ScaleOf(const TrainingReport& report) {
  return std::isnan(report.loss_scale)
             ? ""
             : absl::StrFormat(", loss scale %g, %d skipped", report.loss_scale, report.skipped);
}

}  // namespace

TrainingWatch::TrainingWatch(Config config)
    : config_(std::move(config)), step_(config_.first_step), epoch_(config_.first_epoch) {
  CheckNotNegative("epochs", config_.epochs);
  CheckNotNegative("examples", config_.examples);
  CheckNotNegative("first step", config_.first_step);
  CheckNotNegative("first epoch less 1", config_.first_epoch - 1);
  if (!config_.clock) config_.clock = &SteadySeconds;
  start_ = epoch_start_ = config_.clock();
}

void TrainingWatch::Add(TrainingListener* listener) {
  if (listener == nullptr) ThrowInvalidArgument("training watch: found null, expected a listener");
  listeners_.push_back(listener);
}

void TrainingWatch::Remove(TrainingListener* listener) { std::erase(listeners_, listener); }

void TrainingWatch::set_loss_scale(const LossScale* scale) {
  scale_ = scale;
  skipped_ = scale != nullptr ? scale->skipped() : 0;
}

void TrainingWatch::Tell(void (TrainingListener::*what)(const TrainingReport&),
                         const TrainingReport& report) {
  // One that is told may remove itself.
  const std::vector<TrainingListener*> listeners = listeners_;
  for (TrainingListener* const listener : listeners) (listener->*what)(report);
}

TrainingReport TrainingWatch::Now() const {
  TrainingReport report;
  const double now = config_.clock(), epoch_seconds = now - epoch_start_;
  report.step = step_, report.epoch = epoch_, report.epochs = config_.epochs;
  report.examples = examples_, report.epoch_examples = config_.examples;
  report.loss = last_loss_, report.score = score_;
  if (scale_ != nullptr) report.loss_scale = scale_->scale(), report.skipped = scale_->skipped();
  report.seconds = now - start_;
  report.examples_per_second =
      epoch_seconds > 0 ? static_cast<double>(examples_) / epoch_seconds : 0;
  if (config_.epochs > 0 && config_.examples > 0 && all_examples_ > 0) {
    const double epochs_behind = static_cast<double>(std::max<int64_t>(0, config_.epochs - epoch_));
    const double of_this = static_cast<double>(std::max<int64_t>(0, config_.examples - examples_));
    report.seconds_left = report.seconds / static_cast<double>(all_examples_) *
                          (epochs_behind * static_cast<double>(config_.examples) + of_this);
  }
  return report;
}

void TrainingWatch::AddMemory(TrainingReport* report) const {
  for (const DeviceMemory& device : MemoryTracker::Global().Snapshot().devices) {
    report->memory_bytes += device.total.current_bytes;
    report->memory_peak_bytes += device.total.peak_bytes;
  }
}

TrainingReport TrainingWatch::report() const {
  TrainingReport report = Now();
  AddMemory(&report);
  return report;
}

void TrainingWatch::OnStep(int64_t examples, double loss) {
  CheckNotNegative("examples of a step", examples);
  ++step_;
  examples_ += examples;
  all_examples_ += examples;
  const bool is_skipped = scale_ != nullptr && scale_->skipped() != skipped_;
  if (is_skipped) {
    skipped_ = scale_->skipped();
  } else {
    loss_sum_ += loss * static_cast<double>(examples);
    loss_examples_ += examples;
  }
  last_loss_ = loss;
  if (!listeners_.empty()) Tell(&TrainingListener::OnStep, Now());
}

void TrainingWatch::OnEpoch(double score) {
  score_ = score;
  if (loss_examples_ > 0) last_loss_ = loss_sum_ / static_cast<double>(loss_examples_);
  TrainingReport report = Now();
  // It has ended, however many examples it had.
  if (!std::isnan(report.seconds_left)) {
    report.seconds_left = report.seconds / static_cast<double>(all_examples_) *
                          static_cast<double>(config_.examples) *
                          static_cast<double>(std::max<int64_t>(0, config_.epochs - epoch_));
  }
  AddMemory(&report);
  ++epoch_;
  examples_ = 0;
  loss_sum_ = 0;
  loss_examples_ = 0;
  epoch_start_ = config_.clock();
  Tell(&TrainingListener::OnEpoch, report);
}

void TrainingWatch::OnEnd() {
  TrainingReport report = Now();
  report.epoch = examples_ > 0 ? epoch_ : std::max(config_.first_epoch, epoch_ - 1);
  report.seconds_left = 0;
  AddMemory(&report);
  Tell(&TrainingListener::OnEnd, report);
}

void ProgressPrinter::OnStep(const TrainingReport& report) {
  if (report.seconds - last_ < seconds_) return;
  last_ = report.seconds;
  absl::FPrintF(file_, "%s, step %d: loss %.4f%s, %.0f examples/s%s\n", EpochOf(report),
                report.step, report.loss, ScaleOf(report), report.examples_per_second,
                TimeLeft(report));
  std::fflush(file_);
}

void ProgressPrinter::OnEpoch(const TrainingReport& report) {
  last_ = report.seconds;
  const std::string score =
      std::isnan(report.score) ? "" : absl::StrFormat(", score %.4f", report.score);
  absl::FPrintF(file_, "%s: loss %.4f%s%s, %.0f examples/s, at most %.1f MiB%s\n", EpochOf(report),
                report.loss, score, ScaleOf(report), report.examples_per_second,
                static_cast<double>(report.memory_peak_bytes) / (1 << 20), TimeLeft(report));
  std::fflush(file_);
}

void ProgressPrinter::OnEnd(const TrainingReport& report) {
  absl::FPrintF(file_, "%d steps in %.1f s, at most %.1f MiB\n", report.step, report.seconds,
                static_cast<double>(report.memory_peak_bytes) / (1 << 20));
  std::fflush(file_);
}

}  // namespace tidepool::nn
