#include "tidepool/eval/checked_batch.h"

#include <charconv>
#include <cmath>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/eval/sums.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr double kLargestValue = 1e100;  // so that products of three have room

std::string NumberText(double number) {
  if (std::isnan(number)) return "NaN";
  char text[32];  // the shortest that is read back as the number: 1.0000001 is not 1
  return {text, std::to_chars(std::begin(text), std::end(text), number).ptr};
}

}  // namespace

CheckedBatch::CheckedBatch(const EvaluationBatch& batch, const char* who, int64_t columns,
                           ScoresAre scores, LabelsAre labels, bool weights_by_column)
    : batch_(batch), who_(who), columns_(columns) {
  if (batch.columns != columns) {
    ThrowInvalidArgument(
        absl::StrCat(who, ": columns of scores: found ", batch.columns, ", expected ", columns));
  }
  rows_ = static_cast<int64_t>(batch.scores.size()) / columns;
  classes_given_ =
      labels == LabelsAre::kClasses && static_cast<int64_t>(batch.labels.size()) == rows_;
  CheckSizes(weights_by_column);
  for (int64_t row = 0; row < rows_; ++row) CheckRow(row, scores, labels);
}

void CheckedBatch::CheckSizes(bool weights_by_column) {
  const int64_t scores = static_cast<int64_t>(batch_.scores.size());
  const int64_t labels = static_cast<int64_t>(batch_.labels.size());
  const int64_t weights = static_cast<int64_t>(batch_.weights.size());
  if (scores % columns_ != 0) {
    ThrowInvalidArgument(
        absl::StrCat(who_, ": scores: found ", scores, ", expected rows of ", columns_));
  }
  if (!classes_given_ && labels != scores) {
    ThrowInvalidArgument(absl::StrCat(who_, ": labels: found ", labels, ", expected ", scores,
                                      " for ", rows_, " rows of ", columns_, " scores"));
  }
  if (weights == 0) return;
  const bool divide = scores % weights == 0;
  per_weight_ = divide ? scores / weights : 0;
  const bool by_row = divide && per_weight_ % columns_ == 0;
  if (!by_row && !(divide && weights_by_column && per_weight_ == 1)) {
    ThrowInvalidArgument(
        absl::StrCat(who_, ": weights: found ", weights, ", expected one for each of ", rows_,
                     " rows", weights_by_column ? absl::StrCat(" or of ", scores, " scores") : ""));
  }
  for (int64_t i = 0; i < weights; ++i) {
    const double weight = batch_.weights[i];
    if (weight >= 0 && weight <= WeightSum::kLargestWeight) continue;
    ThrowInvalidArgument(absl::StrCat(who_, ": weight ", i, ": found ", NumberText(weight),
                                      ", expected 0 to ",
                                      static_cast<int64_t>(WeightSum::kLargestWeight)));
  }
}

void CheckedBatch::CheckRow(int64_t row, ScoresAre scores, LabelsAre labels) const {
  const auto refuse = [&](const char* what, int64_t column, double found,
                          absl::string_view expected) {
    ThrowInvalidArgument(absl::StrCat(who_, ": ", what, " of row ", row, ", ",
                                      labels == LabelsAre::kClasses ? "class " : "column ", column,
                                      ": found ", NumberText(found), ", expected ", expected));
  };
  if (labels == LabelsAre::kClasses && weight(row) != 0) {
    if (classes_given_) {
      const double found = batch_.labels[row];
      if (!(found >= 0 && found < static_cast<double>(columns_) && found == std::floor(found))) {
        ThrowInvalidArgument(absl::StrCat(who_, ": label ", row, ": found ", NumberText(found),
                                          ", expected 0..", columns_ - 1));
      }
    } else {
      for (int64_t column = 0; column < columns_; ++column) {
        const double found = label(row, column);
        if (!(found >= 0 && std::isfinite(found))) refuse("label", column, found, "0 or more");
      }
      if (!(label(row, label_class(row)) > 0))
        refuse("label", 0, 0, "a class whose label is above 0");
    }
  }
  for (int64_t column = 0; column < columns_; ++column) {
    if (weight(row, column) == 0) continue;
    const double found = score(row, column);
    if (std::isnan(found)) refuse("score", column, found, "a number");
    if (scores == ScoresAre::kShares && !(found >= 0 && found <= 1))
      refuse("score", column, found, "0 to 1");
    if (scores == ScoresAre::kFinite && !(std::abs(found) <= kLargestValue))
      refuse("score", column, found, "a size of at most 1e100");
    if (labels == LabelsAre::kClasses) continue;
    const double truth = label(row, column);
    if (labels == LabelsAre::kBinary && truth != 0 && truth != 1)
      refuse("label", column, truth, "0 or 1");
    if (labels == LabelsAre::kValues && !(std::abs(truth) <= kLargestValue))
      refuse("label", column, truth, "a size of at most 1e100");
  }
}

int64_t CheckedBatch::label_class(int64_t row) const {
  if (classes_given_) return static_cast<int64_t>(batch_.labels[row]);
  int64_t largest = 0;
  for (int64_t column = 1; column < columns_; ++column)
    if (label(row, column) > label(row, largest)) largest = column;
  return largest;
}

int64_t CheckedBatch::Largest(int64_t row) const {
  int64_t largest = 0;
  for (int64_t column = 1; column < columns_; ++column)
    if (score(row, column) > score(row, largest)) largest = column;
  return largest;
}

}  // namespace tidepool
