#include "tidepool/eval/evaluation_binary.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/eval/checked_batch.h"
#include "tidepool/eval/report_text.h"
#include "tidepool/eval/state_format.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr char kWho[] = "EvaluationBinary";

double Ratio(double numerator, double denominator) {
  return denominator == 0 ? 0.0 : numerator / denominator;
}

}  // namespace

EvaluationBinary::EvaluationBinary(int columns, std::vector<std::string> names,
                                   std::vector<double> thresholds)
    : names_(std::move(names)), thresholds_(std::move(thresholds)) {
  CheckRange(kWho, "columns", columns, 1, 1 << 20);
  CheckNames(kWho, names_, columns);
  if (thresholds_.empty()) thresholds_.push_back(0.5);
  if (thresholds_.size() == 1) thresholds_.resize(columns, thresholds_[0]);
  if (thresholds_.size() != static_cast<size_t>(columns)) {
    ThrowInvalidArgument(absl::StrCat(kWho, ": thresholds: found ", thresholds_.size(),
                                      ", expected none, one or ", columns));
  }
  for (const double threshold : thresholds_)
    if (!std::isfinite(threshold))
      ThrowInvalidArgument(
          absl::StrCat(kWho, ": threshold: found ", threshold, ", expected a finite number"));
  counts_.resize(columns);
}

const EvaluationBinary::Counts& EvaluationBinary::At(int column) const {
  CheckRange(kWho, "column", column, 0, columns() - 1);
  return counts_[column];
}

double EvaluationBinary::threshold(int column) const {
  At(column);
  return thresholds_[column];
}

void EvaluationBinary::Add(const EvaluationBatch& batch) {
  const CheckedBatch checked(batch, kWho, columns(), ScoresAre::kNumbers, LabelsAre::kBinary, true);
  for (int64_t row = 0; row < checked.rows(); ++row) {
    for (int64_t column = 0; column < checked.columns(); ++column) {
      const double weight = checked.weight(row, column);
      if (weight == 0) continue;
      Counts& counts = counts_[column];
      const bool said = checked.score(row, column) > thresholds_[column];
      counts.sums[2 * (checked.label(row, column) != 0) + said].Add(weight);
      ++counts.count;
    }
  }
}

void EvaluationBinary::Merge(const EvaluationBinary& other) {
  if (other.columns() != columns()) {
    ThrowInvalidArgument(
        absl::StrCat(kWho, ": merge: found ", other.columns(), " columns, expected ", columns()));
  }
  for (int column = 0; column < columns(); ++column) {
    if (other.thresholds_[column] == thresholds_[column]) continue;
    ThrowInvalidArgument(absl::StrCat(kWho, ": merge: found threshold ", other.thresholds_[column],
                                      " of column ", column, ", expected ", thresholds_[column]));
  }
  for (int column = 0; column < columns(); ++column) {
    counts_[column].count += other.counts_[column].count;
    for (int i = 0; i < 4; ++i) counts_[column].sums[i].Merge(other.counts_[column].sums[i]);
  }
}

std::string EvaluationBinary::Serialize() const {
  StateWriter writer(kWho);
  writer.Int(columns());
  for (const double threshold : thresholds_) writer.Double(threshold);
  for (const Counts& counts : counts_) {
    writer.Int(counts.count);
    for (const WeightSum& sum : counts.sums) sum.Write(writer);
  }
  return std::move(writer).Take();
}

void EvaluationBinary::MergeSerialized(absl::string_view state) {
  StateReader reader(state, kWho);
  reader.Same("columns", int64_t{columns()});
  for (const double threshold : thresholds_) reader.Same("threshold", threshold);
  EvaluationBinary other(columns(), {}, thresholds_);
  for (Counts& counts : other.counts_) {
    counts.count = reader.Count();
    for (WeightSum& sum : counts.sums) sum.Read(reader);
  }
  reader.End();
  Merge(other);
}

void EvaluationBinary::Reset() { counts_.assign(counts_.size(), Counts()); }

double EvaluationBinary::Accuracy(int column) const {
  const double right = TruePositives(column) + TrueNegatives(column);
  return Ratio(right, right + FalsePositives(column) + FalseNegatives(column));
}
double EvaluationBinary::Precision(int column) const {
  return Ratio(TruePositives(column), TruePositives(column) + FalsePositives(column));
}
double EvaluationBinary::Recall(int column) const {
  return Ratio(TruePositives(column), TruePositives(column) + FalseNegatives(column));
}
double EvaluationBinary::F1(int column) const {
  const double both = 2 * TruePositives(column);
  return Ratio(both, both + FalsePositives(column) + FalseNegatives(column));
}
double EvaluationBinary::FalsePositiveRate(int column) const {
  return Ratio(FalsePositives(column), FalsePositives(column) + TrueNegatives(column));
}
double EvaluationBinary::MatthewsCorrelation(int column) const {
  const double tp = TruePositives(column), fp = FalsePositives(column);
  const double fn = FalseNegatives(column), tn = TrueNegatives(column);
  return Ratio(tp * tn - fp * fn,
               std::sqrt(tp + fp) * std::sqrt(tp + fn) * std::sqrt(tn + fp) * std::sqrt(tn + fn));
}

double EvaluationBinary::Sum(Metric metric) const {
  double sum = 0;
  for (int column = 0; column < columns(); ++column) sum += (this->*metric)(column);
  return sum;
}
double EvaluationBinary::Macro(Metric metric) const { return Sum(metric) / columns(); }
double EvaluationBinary::Weighted(Metric metric) const {
  double sum = 0, weights = 0;
  for (int column = 0; column < columns(); ++column) {
    const double weight = TruePositives(column) + FalseNegatives(column);
    sum += weight * (this->*metric)(column);
    weights += weight;
  }
  return Ratio(sum, weights);
}

double EvaluationBinary::MacroAccuracy() const { return Macro(&EvaluationBinary::Accuracy); }
double EvaluationBinary::MacroPrecision() const { return Macro(&EvaluationBinary::Precision); }
double EvaluationBinary::MacroRecall() const { return Macro(&EvaluationBinary::Recall); }
double EvaluationBinary::MacroF1() const { return Macro(&EvaluationBinary::F1); }
double EvaluationBinary::WeightedPrecision() const {
  return Weighted(&EvaluationBinary::Precision);
}
double EvaluationBinary::WeightedRecall() const { return Weighted(&EvaluationBinary::Recall); }
double EvaluationBinary::WeightedF1() const { return Weighted(&EvaluationBinary::F1); }

double EvaluationBinary::MicroPrecision() const {
  const double tp = Sum(&EvaluationBinary::TruePositives);
  return Ratio(tp, tp + Sum(&EvaluationBinary::FalsePositives));
}
double EvaluationBinary::MicroRecall() const {
  const double tp = Sum(&EvaluationBinary::TruePositives);
  return Ratio(tp, tp + Sum(&EvaluationBinary::FalseNegatives));
}
double EvaluationBinary::MicroF1() const {
  const double both = 2 * Sum(&EvaluationBinary::TruePositives);
  return Ratio(
      both, both + Sum(&EvaluationBinary::FalsePositives) + Sum(&EvaluationBinary::FalseNegatives));
}

std::string EvaluationBinary::Report() const {
  std::string text = absl::StrFormat(
      "outputs %d\n"
      "macro  accuracy %.4f  precision %.4f  recall %.4f  F1 %.4f\n"
      "micro                   precision %.4f  recall %.4f  F1 %.4f\n\n",
      columns(), MacroAccuracy(), MacroPrecision(), MacroRecall(), MacroF1(), MicroPrecision(),
      MicroRecall(), MicroF1());
  TextTable table({"output", "accuracy", "precision", "recall", "F1", "Matthews", "TP", "FP", "FN",
                   "TN", "count"},
                  1);
  for (int c = 0; c < columns(); ++c) {
    const auto number = [](double weight) { return absl::StrFormat("%.6g", weight); };
    table.AddRow({NameOf(names_, c), ValueText(Accuracy(c)), ValueText(Precision(c)),
                  ValueText(Recall(c)), ValueText(F1(c)), ValueText(MatthewsCorrelation(c)),
                  number(TruePositives(c)), number(FalsePositives(c)), number(FalseNegatives(c)),
                  number(TrueNegatives(c)), absl::StrCat(count(c))});
  }
  return text + table.Text();
}

}  // namespace tidepool
