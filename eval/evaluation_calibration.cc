#include "tidepool/eval/evaluation_calibration.h"

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

constexpr char kWho[] = "EvaluationCalibration";
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// As numpy.linspace(0, 1, bins + 1) rounds it.
double Edge(int i, int bins) { return i == bins ? 1 : i * (1.0 / bins); }

double Expected(const std::vector<ReliabilityBin>& bins) {
  double sum = 0, weights = 0;
  for (const ReliabilityBin& bin : bins) {
    if (bin.weight == 0) continue;
    sum += bin.weight * std::abs(bin.mean_probability - bin.frequency);
    weights += bin.weight;
  }
  return weights == 0 ? kNaN : sum / weights;
}

std::string Tsv(const std::vector<ReliabilityBin>& bins) {
  std::string text = "lower\tupper\tweight\tmean_probability\tfrequency\n";
  for (const ReliabilityBin& bin : bins) {
    absl::StrAppendFormat(&text, "%.9g\t%.9g\t%.9g\t%.9g\t%.9g\n", bin.lower, bin.upper, bin.weight,
                          bin.mean_probability, bin.frequency);
  }
  return text;
}

}  // namespace

EvaluationCalibration::EvaluationCalibration(int classes, int reliability_bins, int histogram_bins,
                                             std::vector<std::string> names)
    : classes_(classes),
      reliability_bins_(reliability_bins),
      histogram_bins_(histogram_bins),
      names_(std::move(names)) {
  CheckRange(kWho, "classes", classes, 2, 16384);
  CheckRange(kWho, "reliability bins", reliability_bins, 1, 10000);
  CheckRange(kWho, "histogram bins", histogram_bins, 1, 10000);
  CheckNames(kWho, names_, classes);
  Reset();
}

void EvaluationCalibration::Reset() {
  count_ = 0;
  bins_.assign((static_cast<size_t>(classes_) + 1) * reliability_bins_, Bin());
  probabilities_.assign(static_cast<size_t>(classes_) * histogram_bins_, WeightSum());
  residuals_ = probabilities_;
  weight_ = brier_ = WeightSum();
}

void EvaluationCalibration::Check(int c) const { CheckRange(kWho, "class", c, 0, classes_ - 1); }

std::string EvaluationCalibration::name(int c) const {
  Check(c);
  return NameOf(names_, c);
}

int EvaluationCalibration::ReliabilityBinOf(double probability) const {
  int bin = std::clamp(static_cast<int>(probability * reliability_bins_), 0, reliability_bins_ - 1);
  while (bin + 1 < reliability_bins_ && Edge(bin + 1, reliability_bins_) < probability) ++bin;
  while (bin > 0 && Edge(bin, reliability_bins_) >= probability) --bin;
  return bin;
}

int EvaluationCalibration::HistogramBinOf(double value) const {
  int bin = std::clamp(static_cast<int>(value * histogram_bins_), 0, histogram_bins_ - 1);
  while (bin + 1 < histogram_bins_ && Edge(bin + 1, histogram_bins_) <= value) ++bin;
  while (bin > 0 && Edge(bin, histogram_bins_) > value) --bin;
  return bin;
}

void EvaluationCalibration::Add(const EvaluationBatch& batch) {
  const CheckedBatch checked(batch, kWho, classes_, ScoresAre::kShares, LabelsAre::kClasses, false);
  for (int64_t row = 0; row < checked.rows(); ++row) {
    const double weight = checked.weight(row);
    if (weight == 0) continue;
    const int64_t label = checked.label_class(row), prediction = checked.Largest(row);
    const auto add = [&](int64_t c, double probability, bool truth) {
      Bin& bin = bins_[c * reliability_bins_ + ReliabilityBinOf(probability)];
      bin.weight.Add(weight);
      bin.probability.Add(weight * probability);
      if (truth) bin.truth.Add(weight);
    };
    for (int64_t c = 0; c < classes_; ++c) {
      const double probability = checked.score(row, c);
      const double residual = std::abs((c == label) - probability);
      add(c, probability, c == label);
      probabilities_[c * histogram_bins_ + HistogramBinOf(probability)].Add(weight);
      residuals_[c * histogram_bins_ + HistogramBinOf(residual)].Add(weight);
      brier_.Add(weight * residual * residual);
    }
    add(classes_, checked.score(row, prediction), prediction == label);
    weight_.Add(weight);
    ++count_;
  }
}

void EvaluationCalibration::Merge(const EvaluationCalibration& other) {
  const auto same = [](const char* what, int found, int expected) {
    if (found == expected) return;
    ThrowInvalidArgument(
        absl::StrCat(kWho, ": merge: found ", what, " ", found, ", expected ", expected));
  };
  same("classes", other.classes_, classes_);
  same("reliability bins", other.reliability_bins_, reliability_bins_);
  same("histogram bins", other.histogram_bins_, histogram_bins_);
  for (size_t i = 0; i < bins_.size(); ++i) {
    bins_[i].weight.Merge(other.bins_[i].weight);
    bins_[i].probability.Merge(other.bins_[i].probability);
    bins_[i].truth.Merge(other.bins_[i].truth);
  }
  for (size_t i = 0; i < residuals_.size(); ++i) {
    probabilities_[i].Merge(other.probabilities_[i]);
    residuals_[i].Merge(other.residuals_[i]);
  }
  weight_.Merge(other.weight_);
  brier_.Merge(other.brier_);
  count_ += other.count_;
}

std::string EvaluationCalibration::Serialize() const {
  StateWriter writer(kWho);
  writer.Int(classes_);
  writer.Int(reliability_bins_);
  writer.Int(histogram_bins_);
  writer.Int(count_);
  for (const Bin& bin : bins_) {
    bin.weight.Write(writer);
    bin.probability.Write(writer);
    bin.truth.Write(writer);
  }
  for (const WeightSum& sum : probabilities_) sum.Write(writer);
  for (const WeightSum& sum : residuals_) sum.Write(writer);
  weight_.Write(writer);
  brier_.Write(writer);
  return std::move(writer).Take();
}

void EvaluationCalibration::MergeSerialized(absl::string_view state) {
  StateReader reader(state, kWho);
  reader.Same("classes", int64_t{classes_});
  reader.Same("reliability bins", int64_t{reliability_bins_});
  reader.Same("histogram bins", int64_t{histogram_bins_});
  EvaluationCalibration other(classes_, reliability_bins_, histogram_bins_);
  other.count_ = reader.Count();
  for (Bin& bin : other.bins_) {
    bin.weight.Read(reader);
    bin.probability.Read(reader);
    bin.truth.Read(reader);
  }
  for (WeightSum& sum : other.probabilities_) sum.Read(reader);
  for (WeightSum& sum : other.residuals_) sum.Read(reader);
  other.weight_.Read(reader);
  other.brier_.Read(reader);
  reader.End();
  Merge(other);
}

std::vector<ReliabilityBin> EvaluationCalibration::BinsFrom(size_t first) const {
  std::vector<ReliabilityBin> result;
  for (int i = 0; i < reliability_bins_; ++i) {
    const Bin& bin = bins_[first * reliability_bins_ + i];
    const double weight = bin.weight.Value();
    result.push_back({Edge(i, reliability_bins_), Edge(i + 1, reliability_bins_), weight,
                      weight == 0 ? kNaN : bin.probability.Value() / weight,
                      weight == 0 ? kNaN : bin.truth.Value() / weight});
  }
  return result;
}

std::vector<ReliabilityBin> EvaluationCalibration::Reliability(int c) const {
  Check(c);
  return BinsFrom(c);
}
std::vector<ReliabilityBin> EvaluationCalibration::Confidence() const { return BinsFrom(classes_); }
double EvaluationCalibration::ExpectedCalibrationError() const { return Expected(Confidence()); }
double EvaluationCalibration::ExpectedCalibrationError(int c) const {
  return Expected(Reliability(c));
}
double EvaluationCalibration::MaximumCalibrationError() const {
  double largest = kNaN;
  for (const ReliabilityBin& bin : Confidence())
    if (bin.weight != 0)
      largest = std::fmax(largest, std::abs(bin.mean_probability - bin.frequency));
  return largest;
}

double EvaluationCalibration::BrierScore() const {
  const double weight = weight_.Value();
  return weight == 0 ? kNaN : brier_.Value() / weight;
}

std::vector<double> EvaluationCalibration::Values(const std::vector<WeightSum>& histograms,
                                                  int c) const {
  Check(c);
  std::vector<double> values;
  for (int i = 0; i < histogram_bins_; ++i)
    values.push_back(histograms[static_cast<size_t>(c) * histogram_bins_ + i].Value());
  return values;
}
std::vector<double> EvaluationCalibration::ProbabilityHistogram(int c) const {
  return Values(probabilities_, c);
}
std::vector<double> EvaluationCalibration::ResidualHistogram(int c) const {
  return Values(residuals_, c);
}
std::vector<double> EvaluationCalibration::ResidualHistogram() const {
  std::vector<WeightSum> sums(histogram_bins_);
  for (size_t i = 0; i < residuals_.size(); ++i) sums[i % histogram_bins_].Merge(residuals_[i]);
  return Values(sums, 0);
}

std::string EvaluationCalibration::ConfidenceTsv() const { return Tsv(Confidence()); }
std::string EvaluationCalibration::ReliabilityTsv(int c) const { return Tsv(Reliability(c)); }

std::string EvaluationCalibration::Report() const {
  std::string text = absl::StrFormat(
      "examples %d  classes %d\n"
      "expected calibration error  %s\n"
      "maximum calibration error   %s\n"
      "Brier score                 %s\n\n",
      count_, classes_, ValueText(ExpectedCalibrationError()), ValueText(MaximumCalibrationError()),
      ValueText(BrierScore()));
  TextTable table({"confidence", "said", "right", "weight"}, 1);
  for (const ReliabilityBin& bin : Confidence()) {
    if (bin.weight == 0) continue;
    table.AddRow({absl::StrFormat("%.2f to %.2f", bin.lower, bin.upper),
                  ValueText(bin.mean_probability), ValueText(bin.frequency),
                  absl::StrFormat("%.6g", bin.weight)});
  }
  return text + table.Text();
}

}  // namespace tidepool
