#include "tidepool/eval/evaluation.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/eval/checked_batch.h"
#include "tidepool/eval/state_format.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

double Ratio(double numerator, double denominator) {
  return denominator == 0 ? 0.0 : numerator / denominator;
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
  EvaluationBatch batch;
  batch.scores = scores;
  batch.labels = labels;
  batch.columns = classes();
  Add(batch);
}

void Evaluation::Add(const EvaluationBatch& batch) {
  const CheckedBatch checked(batch, "evaluation", classes(), ScoresAre::kNumbers,
                             LabelsAre::kClasses, false);
  for (int64_t row = 0; row < checked.rows(); ++row) {
    const double weight = checked.weight(row);
    if (weight == 0) continue;
    const int64_t label = checked.label_class(row);
    confusion_.Add(label, checked.Largest(row), weight);
    scored_.Add(weight);
    const double own = checked.score(row, label);
    int larger = 0;
    for (int64_t c = 0; c < checked.columns(); ++c) larger += checked.score(row, c) > own;
    if (larger < top_n_) top_n_correct_.Add(weight);
  }
}

void Evaluation::Merge(const Evaluation& other) {
  if (other.top_n_ != top_n_) {
    ThrowInvalidArgument(
        absl::StrCat("evaluation: merge: found top_n ", other.top_n_, ", expected ", top_n_));
  }
  confusion_.Merge(other.confusion_);
  scored_.Merge(other.scored_);
  top_n_correct_.Merge(other.top_n_correct_);
}

void Evaluation::Reset() {
  confusion_.Reset();
  scored_ = top_n_correct_ = WeightSum();
}

std::string Evaluation::Serialize() const {
  StateWriter writer("evaluation");
  writer.Int(classes());
  writer.Int(top_n_);
  confusion_.Write(writer);
  scored_.Write(writer);
  top_n_correct_.Write(writer);
  return std::move(writer).Take();
}

void Evaluation::MergeSerialized(absl::string_view state) {
  StateReader reader(state, "evaluation");
  reader.Same("classes", int64_t{classes()});
  reader.Same("top_n", int64_t{top_n_});
  Evaluation other(classes(), {}, top_n_);
  other.confusion_.Read(reader);
  other.scored_.Read(reader);
  other.top_n_correct_.Read(reader);
  reader.End();
  Merge(other);
}

int64_t Evaluation::TrueNegatives(int c) const {
  return count() - confusion_.LabelCount(c) - confusion_.PredictionCount(c) + TruePositives(c);
}

double Evaluation::Accuracy() const {
  return Ratio(confusion_.correct_weight(), confusion_.total_weight());
}
double Evaluation::TopNAccuracy() const { return Ratio(top_n_correct_.Value(), scored_.Value()); }
double Evaluation::Precision(int c) const {
  return Ratio(confusion_.Weight(c, c), confusion_.PredictionWeight(c));
}
double Evaluation::Recall(int c) const {
  return Ratio(confusion_.Weight(c, c), confusion_.LabelWeight(c));
}
double Evaluation::F1(int c) const {
  return Ratio(2 * confusion_.Weight(c, c),
               confusion_.PredictionWeight(c) + confusion_.LabelWeight(c));
}
double Evaluation::FalsePositiveRate(int c) const {
  const ConfusionMatrix::ClassWeights weights = confusion_.AgainstOthers(c);
  return Ratio(weights.false_positive, weights.negative);
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

template <typename Metric>
double Evaluation::Weighted(Metric metric) const {
  double sum = 0;
  for (int c = 0; c < classes(); ++c) sum += confusion_.LabelWeight(c) * metric(c);
  return Ratio(sum, confusion_.total_weight());
}

double Evaluation::WeightedPrecision() const {
  return Weighted([this](int c) { return Precision(c); });
}
double Evaluation::WeightedRecall() const {
  return Weighted([this](int c) { return Recall(c); });
}
double Evaluation::WeightedF1() const {
  return Weighted([this](int c) { return F1(c); });
}

// With n examples, w wrong ones, and p_c predictions and t_c labels of class c. n^2 - sum p_c t_c is
// written as sum t_c (n - p_c), and so on: where nearly all is of one class the former's two sides
// are nearly the same.
double Evaluation::CohensKappa() const {
  double wrong = 0, by_chance = 0;  // wrong ones, by chance times n
  for (const ConfusionMatrix::ClassWeights& c : confusion_.AgainstOthers()) {
    wrong += c.false_positive;
    by_chance += (c.true_positive + c.false_negative) * (c.false_negative + c.true_negative);
  }
  // One class alone: 0 / 0.
  return 1 - confusion_.total_weight() * wrong / by_chance;
}

double Evaluation::MatthewsCorrelation(int c) const {
  const auto [tp, fp, fn, tn, negative] = confusion_.AgainstOthers(c);
  const double denominator =
      std::sqrt(tp + fp) * std::sqrt(tp + fn) * std::sqrt(tn + fp) * std::sqrt(tn + fn);
  return denominator == 0 ? 0.0 : (tp * tn - fp * fn) / denominator;
}

double Evaluation::MatthewsCorrelation() const {
  // (n s - sum p_c t_c) / sqrt((n^2 - sum p_c^2) (n^2 - sum t_c^2)), of n - w = s right ones.
  double wrong = 0, both = 0, predicted = 0, labelled = 0;
  for (const ConfusionMatrix::ClassWeights& c : confusion_.AgainstOthers()) {
    const double p = c.true_positive + c.false_positive, t = c.true_positive + c.false_negative;
    const double others = c.false_negative + c.true_negative;  // n - p
    wrong += c.false_positive;
    both += t * others;
    predicted += p * others;
    labelled += t * c.negative;
  }
  const double denominator = std::sqrt(predicted) * std::sqrt(labelled);
  return denominator == 0 ? 0.0 : (both - confusion_.total_weight() * wrong) / denominator;
}

}  // namespace tidepool
