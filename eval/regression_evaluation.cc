#include "tidepool/eval/regression_evaluation.h"

#include <algorithm>
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

constexpr char kWho[] = "RegressionEvaluation";
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Adds the product of the factors and the sum, exact but for what is below 2^-159 of it.
template <typename... Factors>
void AddTimes(ExactSum& to, ExactSum sum, Factors... factors) {
  for (int part = 0; part < 3; ++part) {
    const double value = sum.Value();
    to.AddProduct(factors..., value);
    sum.Add(-value);
  }
}

// Sum of w (x - mean x) (y - mean y), of sums of w x y, w x, w y and w. What is subtracted cancels
// most of the products' sum, so that it may not be rounded. The means are, and what that adds is the
// product of the two sums of w (x - mean x): of values that are large beside their spread no small
// part of the whole.
double Centred(const ExactSum& products, const ExactSum& x, const ExactSum& y,
               const ExactSum& weight) {
  const double mean_x = x.Value() / weight.Value(), mean_y = y.Value() / weight.Value();
  ExactSum sum = products, rest_x = x, rest_y = y;
  AddTimes(sum, y, -mean_x);
  AddTimes(sum, x, -mean_y);
  AddTimes(sum, weight, mean_x, mean_y);
  AddTimes(rest_x, weight, -mean_x);
  AddTimes(rest_y, weight, -mean_y);
  sum.AddProduct(-rest_x.Value() / weight.Value(), rest_y.Value());
  return sum.Value();
}

}  // namespace

RegressionEvaluation::RegressionEvaluation(int columns, std::vector<std::string> names)
    : names_(std::move(names)) {
  CheckRange(kWho, "columns", columns, 1, 1 << 20);
  CheckNames(kWho, names_, columns);
  sums_.resize(columns);
}

const RegressionEvaluation::Sums& RegressionEvaluation::At(int column) const {
  CheckRange(kWho, "column", column, 0, columns() - 1);
  return sums_[column];
}

void RegressionEvaluation::Add(const EvaluationBatch& batch) {
  const CheckedBatch checked(batch, kWho, columns(), ScoresAre::kFinite, LabelsAre::kValues, true);
  for (int64_t row = 0; row < checked.rows(); ++row) {
    for (int64_t column = 0; column < checked.columns(); ++column) {
      const double weight = checked.weight(row, column);
      if (weight == 0) continue;
      const double label = checked.label(row, column), score = checked.score(row, column);
      const double error = score - label;
      Sums& sums = sums_[column];
      ++sums.count;
      sums.weight.Add(weight);
      sums.label.AddProduct(label, weight);
      sums.score.AddProduct(score, weight);
      sums.label_squared.AddProduct(label, label, weight);
      sums.score_squared.AddProduct(score, score, weight);
      sums.product.AddProduct(label, score, weight);
      sums.error_squared.AddProduct(error, error, weight);
      sums.error_size.AddProduct(std::abs(error), weight);
      sums.least_label = std::min(sums.least_label, label);
      sums.most_label = std::max(sums.most_label, label);
      sums.least_score = std::min(sums.least_score, score);
      sums.most_score = std::max(sums.most_score, score);
    }
  }
}

void RegressionEvaluation::Sums::Merge(const Sums& other) {
  count += other.count;
  weight.Merge(other.weight);
  label.Merge(other.label);
  score.Merge(other.score);
  label_squared.Merge(other.label_squared);
  score_squared.Merge(other.score_squared);
  product.Merge(other.product);
  error_squared.Merge(other.error_squared);
  error_size.Merge(other.error_size);
  least_label = std::min(least_label, other.least_label);
  most_label = std::max(most_label, other.most_label);
  least_score = std::min(least_score, other.least_score);
  most_score = std::max(most_score, other.most_score);
}

void RegressionEvaluation::Sums::Write(StateWriter& writer) const {
  writer.Int(count);
  for (const ExactSum* sum : {&weight, &label, &score, &label_squared, &score_squared, &product,
                              &error_squared, &error_size}) {
    sum->Write(writer);
  }
  // -0 is 0, whichever came first.
  for (const double bound : {least_label, most_label, least_score, most_score})
    writer.Double(bound + 0.0);
}

void RegressionEvaluation::Sums::Read(StateReader& reader) {
  count = reader.Count();
  for (ExactSum* sum : {&weight, &label, &score, &label_squared, &score_squared, &product,
                        &error_squared, &error_size}) {
    sum->Read(reader);
  }
  for (double* bound : {&least_label, &most_label, &least_score, &most_score})
    *bound = reader.Double();
}

void RegressionEvaluation::Merge(const RegressionEvaluation& other) {
  if (other.columns() != columns()) {
    ThrowInvalidArgument(
        absl::StrCat(kWho, ": merge: found ", other.columns(), " columns, expected ", columns()));
  }
  for (int column = 0; column < columns(); ++column) sums_[column].Merge(other.sums_[column]);
}

std::string RegressionEvaluation::Serialize() const {
  StateWriter writer(kWho);
  writer.Int(columns());
  for (const Sums& sums : sums_) sums.Write(writer);
  return std::move(writer).Take();
}

void RegressionEvaluation::MergeSerialized(absl::string_view state) {
  StateReader reader(state, kWho);
  reader.Same("columns", int64_t{columns()});
  RegressionEvaluation other(columns());
  for (Sums& sums : other.sums_) sums.Read(reader);
  reader.End();
  Merge(other);
}

void RegressionEvaluation::Reset() { sums_.assign(sums_.size(), Sums()); }

double RegressionEvaluation::MSE(int column) const {
  const Sums& sums = At(column);
  return sums.count == 0 ? kNaN : sums.error_squared.Value() / sums.weight.Value();
}

double RegressionEvaluation::MAE(int column) const {
  const Sums& sums = At(column);
  return sums.count == 0 ? kNaN : sums.error_size.Value() / sums.weight.Value();
}

double RegressionEvaluation::RMSE(int column) const { return std::sqrt(MSE(column)); }

double RegressionEvaluation::Spread(const Sums& sums) {
  if (sums.least_label == sums.most_label) return 0;
  return Centred(sums.label_squared, sums.label, sums.label, sums.weight);
}

double RegressionEvaluation::RSE(int column) const {
  const Sums& sums = At(column);
  if (sums.count == 0) return kNaN;
  const double errors = sums.error_squared.Value(), spread = Spread(sums);
  if (spread == 0) return errors == 0 ? 0 : std::numeric_limits<double>::infinity();
  return errors / spread;
}

double RegressionEvaluation::R2(int column) const {
  const Sums& sums = At(column);
  if (sums.count < 2) return kNaN;
  if (Spread(sums) == 0) return sums.error_squared.Value() == 0 ? 1 : 0;
  return 1 - RSE(column);
}

double RegressionEvaluation::Correlation(int column) const {
  const Sums& sums = At(column);
  if (sums.count < 2 || sums.least_label == sums.most_label || sums.least_score == sums.most_score)
    return kNaN;
  const double both = Centred(sums.product, sums.label, sums.score, sums.weight);
  const double labels = Centred(sums.label_squared, sums.label, sums.label, sums.weight);
  const double scores = Centred(sums.score_squared, sums.score, sums.score, sums.weight);
  return std::clamp(both / (std::sqrt(labels) * std::sqrt(scores)), -1.0, 1.0);
}

double RegressionEvaluation::Mean(Metric metric) const {
  double sum = 0;
  for (int column = 0; column < columns(); ++column) sum += (this->*metric)(column);
  return sum / columns();
}

std::string RegressionEvaluation::Report() const {
  TextTable table({"column", "MSE", "MAE", "RMSE", "RSE", "correlation", "R2", "count"}, 1);
  const auto size = [](double value) {
    return std::isnan(value) ? std::string("undefined") : absl::StrFormat("%.5g", value);
  };
  for (int c = 0; c < columns(); ++c) {
    table.AddRow({NameOf(names_, c), size(MSE(c)), size(MAE(c)), size(RMSE(c)), size(RSE(c)),
                  ValueText(Correlation(c)), ValueText(R2(c)), absl::StrCat(count(c))});
  }
  if (columns() > 1) {
    table.AddRow({"mean", size(MeanMSE()), size(MeanMAE()), size(MeanRMSE()), size(MeanRSE()),
                  ValueText(MeanCorrelation()), ValueText(MeanR2()), ""});
  }
  return table.Text();
}

}  // namespace tidepool
