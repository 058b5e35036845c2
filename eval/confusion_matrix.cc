#include "tidepool/eval/confusion_matrix.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

int CheckedClasses(int classes) {
  if (classes < 2 || classes > ConfusionMatrix::kMaxClasses) {
    ThrowInvalidArgument(absl::StrCat("confusion matrix: classes: found ", classes,
                                      ", expected 2 to ", ConfusionMatrix::kMaxClasses));
  }
  return classes;
}

[[noreturn]] void ThrowOutOfRange(const char* what, size_t index, int64_t found, int classes) {
  ThrowInvalidArgument(absl::StrCat("confusion matrix: ", what, " ", index, ": found ", found,
                                    ", expected 0..", classes - 1));
}

}  // namespace

ConfusionMatrix::ConfusionMatrix(int classes)
    : classes_(CheckedClasses(classes)),
      counts_(static_cast<size_t>(classes) * classes),
      label_counts_(classes),
      prediction_counts_(classes) {}

void ConfusionMatrix::RequireClass(int64_t value, const char* what) const {
  if (value >= 0 && value < classes_) return;
  ThrowInvalidArgument(
      absl::StrCat("confusion matrix: ", what, ": found ", value, ", expected 0..", classes_ - 1));
}

int64_t ConfusionMatrix::at(int label, int prediction) const {
  RequireClass(label, "label");
  RequireClass(prediction, "prediction");
  return counts_[static_cast<size_t>(label) * classes_ + prediction];
}

int64_t ConfusionMatrix::LabelCount(int label) const {
  RequireClass(label, "label");
  return label_counts_[label];
}

int64_t ConfusionMatrix::PredictionCount(int prediction) const {
  RequireClass(prediction, "prediction");
  return prediction_counts_[prediction];
}

void ConfusionMatrix::Add(int64_t label, int64_t prediction) {
  RequireClass(label, "label");
  RequireClass(prediction, "prediction");
  ++counts_[static_cast<size_t>(label) * classes_ + prediction];
  ++label_counts_[label];
  ++prediction_counts_[prediction];
  ++total_;
  correct_ += label == prediction;
}

void ConfusionMatrix::Add(absl::Span<const int64_t> labels, absl::Span<const int64_t> predictions) {
  if (labels.size() != predictions.size()) {
    ThrowInvalidArgument(absl::StrCat("confusion matrix: predictions: found ", predictions.size(),
                                      ", expected ", labels.size(), ", one for each label"));
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= classes_) ThrowOutOfRange("label", i, labels[i], classes_);
    if (predictions[i] < 0 || predictions[i] >= classes_)
      ThrowOutOfRange("prediction", i, predictions[i], classes_);
  }
  for (size_t i = 0; i < labels.size(); ++i) Add(labels[i], predictions[i]);
}

void ConfusionMatrix::Merge(const ConfusionMatrix& other) {
  if (other.classes_ != classes_) {
    ThrowInvalidArgument(absl::StrCat("confusion matrix: merge: found ", other.classes_,
                                      " classes, expected ", classes_));
  }
  const auto add = [](std::vector<int64_t>& to, const std::vector<int64_t>& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  };
  add(counts_, other.counts_);
  add(label_counts_, other.label_counts_);
  add(prediction_counts_, other.prediction_counts_);
  total_ += other.total_;
  correct_ += other.correct_;
}

void ConfusionMatrix::Reset() {
  std::fill(counts_.begin(), counts_.end(), 0);
  std::fill(label_counts_.begin(), label_counts_.end(), 0);
  std::fill(prediction_counts_.begin(), prediction_counts_.end(), 0);
  total_ = correct_ = 0;
}

std::string ConfusionMatrix::ToString() const {
  const int64_t widest = *std::max_element(label_counts_.begin(), label_counts_.end());
  const int width =
      static_cast<int>(std::max(absl::StrCat(widest).size(), absl::StrCat(classes_ - 1).size())) +
      1;
  std::string text = absl::StrFormat("%*spredicted\nlabel ", 6 + width, "");
  for (int column = 0; column < classes_; ++column)
    absl::StrAppendFormat(&text, "%*d", width, column);
  absl::StrAppendFormat(&text, " | %*s\n", std::max(width, 5), "count");
  for (int row = 0; row < classes_; ++row) {
    absl::StrAppendFormat(&text, "%5d ", row);
    for (int column = 0; column < classes_; ++column) {
      const int64_t count = at(row, column);
      // Zeros would drown the few numbers that matter.
      if (count == 0) {
        absl::StrAppendFormat(&text, "%*s", width, ".");
      } else {
        absl::StrAppendFormat(&text, "%*d", width, count);
      }
    }
    absl::StrAppendFormat(&text, " | %*d\n", std::max(width, 5), label_counts_[row]);
  }
  return text;
}

}  // namespace tidepool
