#include "tidepool/nn/training/early_stopping.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {

EarlyStopping::EarlyStopping(const EarlyStoppingConfig& config)
    : config_(config), best_score_(std::numeric_limits<double>::quiet_NaN()) {
  const auto expect = [](bool holds, const char* field, auto found, const char* expected) {
    if (!holds)
      ThrowInvalidArgument(
          absl::StrCat("early stopping: ", field, " ", found, ", expected ", expected));
  };
  expect(config.patience >= 1, "patience", config.patience, "at least 1");
  expect(config.least_improvement >= 0 && std::isfinite(config.least_improvement),
         "least_improvement", config.least_improvement, "0 or more");
  expect(config.most_epochs >= 1, "most_epochs", config.most_epochs, "at least 1");
  if (config.goal) expect(!std::isnan(*config.goal), "goal", *config.goal, "a number");
}

bool EarlyStopping::Observe(double score) {
  const int64_t epoch = epochs_++;
  const double gain = config_.larger_is_better ? score - best_score_ : best_score_ - score;
  // Of equal infinities the difference is NaN, which is no improvement.
  const bool better = !std::isnan(score) && (best_epoch_ < 0 || gain > config_.least_improvement);
  if (better) best_epoch_ = epoch, best_score_ = score;
  FindReason(score);
  return better;
}

void EarlyStopping::FindReason(double score) {
  if (should_stop()) return;
  const bool reached =
      config_.goal && (config_.larger_is_better ? score >= *config_.goal : score <= *config_.goal);
  if (reached) {
    reason_ = StopReason::kGoal;
  } else if (config_.stops_at_nan && std::isnan(score)) {
    reason_ = StopReason::kNan;
  } else if (epochs_ - 1 - best_epoch_ >= config_.patience) {
    reason_ = StopReason::kPatience;
  } else if (epochs_ >= config_.most_epochs) {
    reason_ = StopReason::kMostEpochs;
  }
}

void EarlyStopping::Restore(int64_t epochs, int64_t best_epoch, double best_score,
                            StopReason reason) {
  if (epochs < 0 || best_epoch < -1 || best_epoch >= epochs) {
    if (epochs != 0 || best_epoch != -1) {
      ThrowInvalidArgument(absl::StrCat("early stopping: ", epochs, " epochs with the best ",
                                        best_epoch, ", expected 0 or more, and one of them or -1"));
    }
  }
  epochs_ = epochs, best_epoch_ = best_epoch, best_score_ = best_score;
  reason_ = reason;
  // Without a best one all scores were NaN.
  if (epochs > 0)
    FindReason(best_epoch >= 0 ? best_score : std::numeric_limits<double>::quiet_NaN());
}

std::string EarlyStopping::ToString() const {
  std::string text =
      absl::StrCat(should_stop() ? "stopped after " : "going on after ", epochs_, " epochs");
  switch (reason_) {
    case StopReason::kNone:
      break;
    case StopReason::kPatience:
      absl::StrAppend(&text, ": no improvement for ", epochs_ - 1 - best_epoch_);
      break;
    case StopReason::kMostEpochs:
      absl::StrAppend(&text, ": that is all");
      break;
    case StopReason::kGoal:
      absl::StrAppend(&text, ": the goal is reached");
      break;
    case StopReason::kNan:
      absl::StrAppend(&text, ": the score is not a number");
      break;
  }
  if (best_epoch_ >= 0) absl::StrAppend(&text, "; best ", best_score_, " in epoch ", best_epoch_);
  return text;
}

}  // namespace tidepool::nn
