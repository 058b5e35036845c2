#include "tidepool/eval/confusion_matrix.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/eval/state_format.h"
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
  if (is_weighted()) weights_[static_cast<size_t>(label) * classes_ + prediction].Add(1);
}

void ConfusionMatrix::Add(int64_t label, int64_t prediction, double weight) {
  if (weight == 1) return Add(label, prediction);
  RequireClass(label, "label");
  RequireClass(prediction, "prediction");
  MakeWeights();
  WeightSum& sum = weights_[static_cast<size_t>(label) * classes_ + prediction];
  const WeightSum before = sum;
  Add(label, prediction);
  sum = before;
  sum.Add(weight);
}

void ConfusionMatrix::MakeWeights() {
  if (is_weighted()) return;
  weights_.resize(counts_.size());
  for (size_t i = 0; i < counts_.size(); ++i) weights_[i] = WeightSum::Of(counts_[i]);
}

double ConfusionMatrix::Weight(int label, int prediction) const {
  const int64_t count = at(label, prediction);
  if (!is_weighted()) return static_cast<double>(count);
  return weights_[static_cast<size_t>(label) * classes_ + prediction].Value();
}

WeightSum ConfusionMatrix::WeightsFrom(size_t first, size_t step) const {
  WeightSum sum;
  for (size_t i = 0; i < static_cast<size_t>(classes_); ++i) sum.Merge(weights_[first + i * step]);
  return sum;
}

WeightSum ConfusionMatrix::TotalSum() const {
  if (!is_weighted()) return WeightSum::Of(total_);
  WeightSum sum;
  for (const WeightSum& weight : weights_) sum.Merge(weight);
  return sum;
}

double ConfusionMatrix::LabelWeight(int label) const {
  const int64_t count = LabelCount(label);
  return is_weighted() ? WeightsFrom(static_cast<size_t>(label) * classes_, 1).Value()
                       : static_cast<double>(count);
}

double ConfusionMatrix::PredictionWeight(int prediction) const {
  const int64_t count = PredictionCount(prediction);
  return is_weighted() ? WeightsFrom(prediction, classes_).Value() : static_cast<double>(count);
}

double ConfusionMatrix::total_weight() const {
  return is_weighted() ? TotalSum().Value() : static_cast<double>(total_);
}

ConfusionMatrix::ClassWeights ConfusionMatrix::AgainstOthers(int c) const {
  return AgainstOthers(c, TotalSum());
}

std::vector<ConfusionMatrix::ClassWeights> ConfusionMatrix::AgainstOthers() const {
  const WeightSum total = TotalSum();
  std::vector<ClassWeights> all;
  for (int c = 0; c < classes_; ++c) all.push_back(AgainstOthers(c, total));
  return all;
}

ConfusionMatrix::ClassWeights ConfusionMatrix::AgainstOthers(int c, const WeightSum& total) const {
  const auto sum_of = [&](size_t first, size_t step, int64_t count) {
    return is_weighted() ? WeightsFrom(first, step) : WeightSum::Of(count);
  };
  const auto row = static_cast<size_t>(c) * classes_;
  const int64_t correct = at(c, c);
  const WeightSum diagonal = is_weighted() ? weights_[row + c] : WeightSum::Of(correct),
                  label = sum_of(row, 1, label_counts_[c]),
                  prediction = sum_of(c, classes_, prediction_counts_[c]);
  WeightSum false_positive = prediction, false_negative = label, negative = total;
  false_positive.Remove(diagonal);
  false_negative.Remove(diagonal);
  negative.Remove(label);
  WeightSum true_negative = negative;
  true_negative.Remove(false_positive);
  return {diagonal.Value(), false_positive.Value(), false_negative.Value(), true_negative.Value(),
          negative.Value()};
}

double ConfusionMatrix::correct_weight() const {
  return is_weighted() ? WeightsFrom(0, static_cast<size_t>(classes_) + 1).Value()
                       : static_cast<double>(correct_);
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
  if (other.is_weighted()) {
    MakeWeights();
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i].Merge(other.weights_[i]);
  } else if (is_weighted()) {
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i].Merge(WeightSum::Of(other.counts_[i]));
  }
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
  weights_.clear();
}

void ConfusionMatrix::Write(StateWriter& writer) const {
  writer.Int(is_weighted());
  for (const int64_t count : counts_) writer.Int(count);
  for (const WeightSum& weight : weights_) weight.Write(writer);
}

void ConfusionMatrix::Read(StateReader& reader) {
  Reset();
  const bool weighted = reader.Int(0, 1) != 0;
  reader.CheckRoom(static_cast<int64_t>(counts_.size()), weighted ? 24 : 8);
  for (int label = 0; label < classes_; ++label) {
    for (int prediction = 0; prediction < classes_; ++prediction) {
      const int64_t count = reader.Int(0, StateReader::kMaxCount - total_);
      counts_[static_cast<size_t>(label) * classes_ + prediction] = count;
      label_counts_[label] += count;
      prediction_counts_[prediction] += count;
      total_ += count;
      if (label == prediction) correct_ += count;
    }
  }
  if (!weighted) return;
  weights_.resize(counts_.size());
  for (WeightSum& weight : weights_) weight.Read(reader);
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
