#include "tidepool/eval/roc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/eval/checked_batch.h"
#include "tidepool/eval/report_text.h"
#include "tidepool/eval/state_format.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void CheckSteps(const char* who, int found, int expected) {
  if (found == expected) return;
  ThrowInvalidArgument(
      absl::StrCat(who, ": merge: found threshold steps ", found, ", expected ", expected));
}

}  // namespace

ROC::ROC(int threshold_steps) : steps_(threshold_steps) {
  CheckRange("ROC", "threshold steps", threshold_steps, 0, 1000000);
  if (!is_exact()) bins_.resize(static_cast<size_t>(steps_) + 1);
}

void ROC::Add(const EvaluationBatch& batch) {
  const int64_t columns = batch.columns == 2 ? 2 : 1;
  const CheckedBatch checked(batch, "ROC", columns,
                             is_exact() ? ScoresAre::kNumbers : ScoresAre::kShares,
                             columns == 2 ? LabelsAre::kClasses : LabelsAre::kBinary, false);
  for (int64_t row = 0; row < checked.rows(); ++row) {
    const double weight = checked.weight(row);
    if (weight == 0) continue;
    const bool positive = columns == 2 ? checked.label_class(row) == 1 : checked.label(row, 0) != 0;
    AddExample(positive, checked.score(row, columns - 1), weight);
  }
}

// Division and product are rounded: the bin is the one whose bounds say so.
int64_t ROC::BinOf(double score) const {
  int64_t bin = static_cast<int64_t>(score * steps_);
  while (bin < steps_ && static_cast<double>(bin + 1) / steps_ <= score) ++bin;
  while (bin > 0 && static_cast<double>(bin) / steps_ > score) --bin;
  return bin;
}

void ROC::AddExample(bool positive, double score, double weight) {
  if (is_exact()) {
    examples_.push_back({score, positive ? weight : -weight});
  } else {
    Bin& bin = bins_[BinOf(score)];
    (positive ? bin.positive : bin.negative).Add(weight);
  }
  ++count_;
  positive_count_ += positive;
}

void ROC::Merge(const ROC& other) {
  CheckSteps("ROC", other.steps_, steps_);
  examples_.insert(examples_.end(), other.examples_.begin(), other.examples_.end());
  for (size_t i = 0; i < bins_.size(); ++i) {
    bins_[i].positive.Merge(other.bins_[i].positive);
    bins_[i].negative.Merge(other.bins_[i].negative);
  }
  count_ += other.count_;
  positive_count_ += other.positive_count_;
}

void ROC::Reset() { *this = ROC(steps_); }

void ROC::Write(StateWriter& writer) const {
  writer.Int(count_);
  writer.Int(positive_count_);
  // In an order that does not tell in which they came.
  std::vector<Example> sorted = examples_;
  std::sort(sorted.begin(), sorted.end(), [](const Example& a, const Example& b) {
    return a.score != b.score ? a.score < b.score : a.weight < b.weight;
  });
  for (const Example& example : sorted) {
    writer.Double(example.score + 0.0);  // -0 is 0
    writer.Double(example.weight);
  }
  for (const Bin& bin : bins_) {
    bin.positive.Write(writer);
    bin.negative.Write(writer);
  }
}

void ROC::Read(StateReader& reader) {
  Reset();
  count_ = reader.Count();
  positive_count_ = reader.Int(0, count_);
  reader.CheckRoom(is_exact() ? count_ : static_cast<int64_t>(bins_.size()), is_exact() ? 16 : 32);
  if (is_exact()) {
    int64_t positives = 0;
    examples_.resize(static_cast<size_t>(count_));
    for (Example& example : examples_) {
      example.score = reader.Double();
      example.weight = reader.DoubleOfSize(WeightSum::kLargestWeight);
      positives += example.weight > 0;
    }
    if (positives != positive_count_) {
      ThrowDataLoss(absl::StrCat("ROC: state: found ", positives, " positive examples, expected ",
                                 positive_count_));
    }
  }
  for (Bin& bin : bins_) {
    bin.positive.Read(reader);
    bin.negative.Read(reader);
  }
}

std::string ROC::Serialize() const {
  StateWriter writer("ROC");
  writer.Int(steps_);
  Write(writer);
  return std::move(writer).Take();
}

void ROC::MergeSerialized(absl::string_view state) {
  StateReader reader(state, "ROC");
  reader.Same("threshold steps", int64_t{steps_});
  ROC other(steps_);
  other.Read(reader);
  reader.End();
  Merge(other);
}

double ROC::positive_weight() const {
  WeightSum sum;
  for (const Example& example : examples_)
    if (example.weight > 0) sum.Add(example.weight);
  for (const Bin& bin : bins_) sum.Merge(bin.positive);
  return sum.Value();
}

std::vector<ROC::Step> ROC::Steps() const {
  std::vector<Step> steps;
  WeightSum positive, negative;
  if (!is_exact()) {
    for (int64_t bin = steps_; bin >= 0; --bin) {
      if (bins_[bin].positive.IsZero() && bins_[bin].negative.IsZero()) continue;
      positive.Merge(bins_[bin].positive);
      negative.Merge(bins_[bin].negative);
      steps.push_back({static_cast<double>(bin) / steps_, positive.Value(), negative.Value()});
    }
    return steps;
  }
  std::vector<Example> sorted = examples_;
  std::sort(sorted.begin(), sorted.end(),
            [](const Example& a, const Example& b) { return a.score > b.score; });
  for (size_t i = 0; i < sorted.size(); ++i) {
    const Example& example = sorted[i];
    (example.weight > 0 ? positive : negative).Add(std::abs(example.weight));
    if (i + 1 < sorted.size() && sorted[i + 1].score == example.score) continue;
    steps.push_back({example.score, positive.Value(), negative.Value()});
  }
  return steps;
}

double ROC::AUC() const {
  double area = 0, positive = 0, negative = 0;
  for (const Step& step : Steps()) {
    area += (step.negative - negative) * (step.positive + positive) / 2;
    positive = step.positive;
    negative = step.negative;
  }
  return positive == 0 || negative == 0 ? kNaN : area / positive / negative;
}

double ROC::AUPRC() const {
  const std::vector<PrecisionRecallPoint> curve = PrecisionRecallCurve();
  if (positive_count_ == 0) return kNaN;
  double area = 0;
  for (size_t i = 1; i < curve.size(); ++i)
    area +=
        (curve[i].recall - curve[i - 1].recall) * (curve[i].precision + curve[i - 1].precision) / 2;
  return area;
}

double ROC::AveragePrecision() const {
  if (positive_count_ == 0) return 0;
  const std::vector<PrecisionRecallPoint> curve = PrecisionRecallCurve();
  double area = 0;
  for (size_t i = 1; i < curve.size(); ++i)
    area += (curve[i].recall - curve[i - 1].recall) * curve[i].precision;
  return area;
}

std::vector<RocPoint> ROC::Curve() const {
  const std::vector<Step> steps = Steps();
  std::vector<RocPoint> curve{{kInfinity, 0, 0}};
  if (steps.empty()) return curve;
  const auto rate = [](double some, double all) { return all == 0 ? kNaN : some / all; };
  const double positive = steps.back().positive, negative = steps.back().negative;
  if (positive == 0) curve[0].true_positive_rate = kNaN;
  if (negative == 0) curve[0].false_positive_rate = kNaN;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i > 0 && i + 1 < steps.size() &&
        steps[i + 1].positive - steps[i].positive == steps[i].positive - steps[i - 1].positive &&
        steps[i + 1].negative - steps[i].negative == steps[i].negative - steps[i - 1].negative) {
      continue;
    }
    curve.push_back(
        {steps[i].threshold, rate(steps[i].negative, negative), rate(steps[i].positive, positive)});
  }
  return curve;
}

std::vector<PrecisionRecallPoint> ROC::PrecisionRecallCurve() const {
  const std::vector<Step> steps = Steps();
  std::vector<PrecisionRecallPoint> curve{{kInfinity, 0, 1}};
  for (const Step& step : steps) {
    const double called = step.positive + step.negative, all = steps.back().positive;
    curve.push_back({step.threshold, all == 0 ? 1 : step.positive / all, step.positive / called});
  }
  return curve;
}

std::string ROC::CurveTsv() const {
  std::string text = "threshold\tfalse_positive_rate\ttrue_positive_rate\n";
  for (const RocPoint& point : Curve()) {
    absl::StrAppendFormat(&text, "%.9g\t%.9g\t%.9g\n", point.threshold, point.false_positive_rate,
                          point.true_positive_rate);
  }
  return text;
}

std::string ROC::PrecisionRecallTsv() const {
  std::string text = "threshold\trecall\tprecision\n";
  for (const PrecisionRecallPoint& point : PrecisionRecallCurve())
    absl::StrAppendFormat(&text, "%.9g\t%.9g\t%.9g\n", point.threshold, point.recall,
                          point.precision);
  return text;
}

std::string ROC::Report() const {
  return absl::StrFormat(
      "examples %d  positive %d  thresholds %s\n"
      "AUC                %s\n"
      "AUPRC              %s\n"
      "average precision  %s\n",
      count_, positive_count_, is_exact() ? "all" : absl::StrCat(steps_ + 1), ValueText(AUC()),
      ValueText(AUPRC()), ValueText(AveragePrecision()));
}

}  // namespace tidepool
