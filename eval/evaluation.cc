#include "tidepool/eval/evaluation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

double Ratio(int64_t numerator, int64_t denominator) {
  return denominator == 0 ? 0.0 : static_cast<double>(numerator) / static_cast<double>(denominator);
}

}  // namespace

Evaluation::Evaluation(int classes, std::vector<std::string> names, int top_n)
    : confusion_(classes), names_(std::move(names)), top_n_(top_n) {
  if (!names_.empty() && names_.size() != static_cast<size_t>(classes)) {
    ThrowInvalidArgument(absl::StrCat("evaluation: names: found ", names_.size(),
                                      ", expected none or ", classes, ", one for each class"));
  }
  if (top_n < 1 || top_n > classes) {
    ThrowInvalidArgument(
        absl::StrCat("evaluation: top_n: found ", top_n, ", expected 1..", classes));
  }
}

std::string Evaluation::ClassName(int c) const {
  confusion_.LabelCount(c);  // checks the range
  return names_.empty() ? absl::StrCat(c) : names_[c];
}

void Evaluation::Add(absl::Span<const int64_t> labels, absl::Span<const int64_t> predictions) {
  confusion_.Add(labels, predictions);
}

void Evaluation::AddScores(absl::Span<const int64_t> labels, absl::Span<const float> scores) {
  const size_t width = static_cast<size_t>(classes());
  if (scores.size() % width != 0 || scores.size() / width != labels.size()) {
    ThrowInvalidArgument(absl::StrCat("evaluation: scores: found ", scores.size(), ", expected ",
                                      labels.size(), " labels x ", width,
                                      " classes = ", labels.size() * width));
  }
  // All checks come first, so that a bad batch leaves nothing behind.
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= classes()) {
      ThrowInvalidArgument(absl::StrCat("evaluation: label ", i, ": found ", labels[i],
                                        ", expected 0..", classes() - 1));
    }
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) {
      ThrowInvalidArgument(absl::StrCat("evaluation: score of row ", i / width, ", class ",
                                        i % width, ": found NaN, expected a number"));
    }
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto row = scores.subspan(i * width, width);
    const auto best = std::max_element(row.begin(), row.end());
    confusion_.Add(labels[i], best - row.begin());
    const float own = row[static_cast<size_t>(labels[i])];
    const auto larger =
        std::count_if(row.begin(), row.end(), [own](float score) { return score > own; });
    top_n_correct_ += larger < top_n_;
  }
  scored_ += static_cast<int64_t>(labels.size());
}

void Evaluation::Merge(const Evaluation& other) {
  if (other.top_n_ != top_n_) {
    ThrowInvalidArgument(
        absl::StrCat("evaluation: merge: found top_n ", other.top_n_, ", expected ", top_n_));
  }
  confusion_.Merge(other.confusion_);
  scored_ += other.scored_;
  top_n_correct_ += other.top_n_correct_;
}

void Evaluation::Reset() {
  confusion_.Reset();
  scored_ = top_n_correct_ = 0;
}

int64_t Evaluation::TrueNegatives(int c) const {
  return count() - confusion_.LabelCount(c) - confusion_.PredictionCount(c) + TruePositives(c);
}

double Evaluation::Accuracy() const { return Ratio(confusion_.correct(), count()); }
double Evaluation::TopNAccuracy() const { return Ratio(top_n_correct_, scored_); }
double Evaluation::Precision(int c) const {
  return Ratio(TruePositives(c), confusion_.PredictionCount(c));
}
double Evaluation::Recall(int c) const { return Ratio(TruePositives(c), confusion_.LabelCount(c)); }
double Evaluation::F1(int c) const {
  return Ratio(2 * TruePositives(c), confusion_.PredictionCount(c) + confusion_.LabelCount(c));
}
double Evaluation::FalsePositiveRate(int c) const {
  return Ratio(FalsePositives(c), FalsePositives(c) + TrueNegatives(c));
}

template <typename Metric, typename Defined>
double Evaluation::Macro(ZeroDivision zero, Metric metric, Defined defined) const {
  double sum = 0;
  int64_t classes_counted = 0;
  for (int c = 0; c < classes(); ++c) {
    if (zero == ZeroDivision::kExclude && !defined(c)) continue;
    sum += metric(c);
    ++classes_counted;
  }
  return classes_counted == 0 ? 0.0 : sum / static_cast<double>(classes_counted);
}

double Evaluation::MacroPrecision(ZeroDivision zero) const {
  return Macro(
      zero, [this](int c) { return Precision(c); }, [this](int c) { return IsPredicted(c); });
}
double Evaluation::MacroRecall(ZeroDivision zero) const {
  return Macro(
      zero, [this](int c) { return Recall(c); }, [this](int c) { return Occurs(c); });
}
double Evaluation::MacroF1(ZeroDivision zero) const {
  return Macro(
      zero, [this](int c) { return F1(c); }, [this](int c) { return IsPredicted(c) && Occurs(c); });
}

double Evaluation::MicroPrecision() const { return Accuracy(); }
double Evaluation::MicroRecall() const { return Accuracy(); }
double Evaluation::MicroF1() const { return Accuracy(); }

double Evaluation::MatthewsCorrelation(int c) const {
  const double tp = static_cast<double>(TruePositives(c)),
               fp = static_cast<double>(FalsePositives(c));
  const double fn = static_cast<double>(FalseNegatives(c)),
               tn = static_cast<double>(TrueNegatives(c));
  const double denominator =
      std::sqrt(tp + fp) * std::sqrt(tp + fn) * std::sqrt(tn + fp) * std::sqrt(tn + fn);
  return denominator == 0 ? 0.0 : (tp * tn - fp * fn) / denominator;
}

double Evaluation::MatthewsCorrelation() const {
  // With n examples, correct ones s, and p_c predictions and t_c labels of class c:
  // (n s - sum p_c t_c) / sqrt((n^2 - sum p_c^2) (n^2 - sum t_c^2)).
  const double n = static_cast<double>(count()), s = static_cast<double>(confusion_.correct());
  double both = 0, predicted = 0, labelled = 0;
  for (int c = 0; c < classes(); ++c) {
    const double p = static_cast<double>(confusion_.PredictionCount(c));
    const double t = static_cast<double>(confusion_.LabelCount(c));
    both += p * t;
    predicted += p * p;
    labelled += t * t;
  }
  const double denominator = std::sqrt(n * n - predicted) * std::sqrt(n * n - labelled);
  return denominator == 0 ? 0.0 : (n * s - both) / denominator;
}

}  // namespace tidepool
