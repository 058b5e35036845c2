// ROCBinary and ROCMultiClass: a ROC for each column.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/eval/checked_batch.h"
#include "tidepool/eval/report_text.h"
#include "tidepool/eval/roc.h"
#include "tidepool/eval/state_format.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr char kBinary[] = "ROCBinary", kMultiClass[] = "ROCMultiClass";

std::vector<ROC> MakeRocs(const char* who, const char* what, int count, int64_t lowest,
                          int64_t highest, int steps, const std::vector<std::string>& names) {
  CheckRange(who, what, count, lowest, highest);
  CheckNames(who, names, count);
  return std::vector<ROC>(count, ROC(steps));
}

void MergeRocs(const char* who, const std::vector<ROC>& from, std::vector<ROC>& to) {
  if (from.size() != to.size()) {
    ThrowInvalidArgument(
        absl::StrCat(who, ": merge: found ", from.size(), " columns, expected ", to.size()));
  }
  for (size_t i = 0; i < to.size(); ++i) to[i].Merge(from[i]);
}

void MergeState(const char* who, absl::string_view state, std::vector<ROC>& rocs) {
  StateReader reader(state, who);
  reader.Same("columns", static_cast<int64_t>(rocs.size()));
  reader.Same("threshold steps", int64_t{rocs[0].threshold_steps()});
  std::vector<ROC> others(rocs.size(), ROC(rocs[0].threshold_steps()));
  for (ROC& roc : others) roc.Read(reader);
  reader.End();
  MergeRocs(who, others, rocs);
}

std::string StateOf(const char* who, const std::vector<ROC>& rocs) {
  StateWriter writer(who);
  writer.Int(static_cast<int64_t>(rocs.size()));
  writer.Int(rocs[0].threshold_steps());
  for (const ROC& roc : rocs) roc.Write(writer);
  return std::move(writer).Take();
}

std::vector<double> Areas(const std::vector<ROC>& rocs, double (ROC::*area)() const) {
  std::vector<double> areas;
  for (const ROC& roc : rocs) areas.push_back((roc.*area)());
  return areas;
}

std::string Table(const char* title, const std::vector<ROC>& rocs,
                  const std::vector<std::string>& names) {
  TextTable table({title, "AUC", "AUPRC", "positive", "negative"}, 1);
  for (size_t i = 0; i < rocs.size(); ++i) {
    table.AddRow({NameOf(names, static_cast<int>(i)), ValueText(rocs[i].AUC()),
                  ValueText(rocs[i].AUPRC()), absl::StrCat(rocs[i].positive_count()),
                  absl::StrCat(rocs[i].count() - rocs[i].positive_count())});
  }
  return table.Text();
}

}  // namespace

ROCBinary::ROCBinary(int columns, int threshold_steps, std::vector<std::string> names)
    : rocs_(MakeRocs(kBinary, "columns", columns, 1, 1 << 20, threshold_steps, names)),
      names_(std::move(names)) {}

const ROC& ROCBinary::at(int column) const {
  CheckRange(kBinary, "column", column, 0, columns() - 1);
  return rocs_[column];
}

std::string ROCBinary::name(int column) const {
  CheckRange(kBinary, "column", column, 0, columns() - 1);
  return NameOf(names_, column);
}

double ROCBinary::MeanAUC() const { return MeanOfNumbers(Areas(rocs_, &ROC::AUC)); }
double ROCBinary::MeanAUPRC() const { return MeanOfNumbers(Areas(rocs_, &ROC::AUPRC)); }

void ROCBinary::Add(const EvaluationBatch& batch) {
  const CheckedBatch checked(batch, kBinary, columns(),
                             rocs_[0].is_exact() ? ScoresAre::kNumbers : ScoresAre::kShares,
                             LabelsAre::kBinary, true);
  for (int64_t row = 0; row < checked.rows(); ++row) {
    for (int64_t column = 0; column < checked.columns(); ++column) {
      const double weight = checked.weight(row, column);
      if (weight != 0)
        rocs_[column].AddExample(checked.label(row, column) != 0, checked.score(row, column),
                                 weight);
    }
  }
}

void ROCBinary::Merge(const ROCBinary& other) { MergeRocs(kBinary, other.rocs_, rocs_); }
void ROCBinary::MergeSerialized(absl::string_view state) { MergeState(kBinary, state, rocs_); }
std::string ROCBinary::Serialize() const { return StateOf(kBinary, rocs_); }
void ROCBinary::Reset() {
  for (ROC& roc : rocs_) roc.Reset();
}

std::string ROCBinary::Report() const {
  return absl::StrCat("outputs ", columns(), "\nmean AUC    ", ValueText(MeanAUC()),
                      "\nmean AUPRC  ", ValueText(MeanAUPRC()), "\n\n",
                      Table("output", rocs_, names_));
}

ROCMultiClass::ROCMultiClass(int classes, int threshold_steps, std::vector<std::string> names)
    : rocs_(MakeRocs(kMultiClass, "classes", classes, 2, 16384, threshold_steps, names)),
      names_(std::move(names)) {}

const ROC& ROCMultiClass::at(int c) const {
  CheckRange(kMultiClass, "class", c, 0, classes() - 1);
  return rocs_[c];
}

std::string ROCMultiClass::name(int c) const {
  CheckRange(kMultiClass, "class", c, 0, classes() - 1);
  return NameOf(names_, c);
}

double ROCMultiClass::MacroAUC() const { return MeanOfNumbers(Areas(rocs_, &ROC::AUC)); }
double ROCMultiClass::MacroAUPRC() const { return MeanOfNumbers(Areas(rocs_, &ROC::AUPRC)); }
double ROCMultiClass::WeightedAUC() const {
  return MeanOfNumbers(Areas(rocs_, &ROC::AUC), Areas(rocs_, &ROC::positive_weight));
}

void ROCMultiClass::Add(const EvaluationBatch& batch) {
  const CheckedBatch checked(batch, kMultiClass, classes(),
                             rocs_[0].is_exact() ? ScoresAre::kNumbers : ScoresAre::kShares,
                             LabelsAre::kClasses, false);
  for (int64_t row = 0; row < checked.rows(); ++row) {
    const double weight = checked.weight(row);
    if (weight == 0) continue;
    const int64_t label = checked.label_class(row);
    for (int64_t c = 0; c < checked.columns(); ++c)
      rocs_[c].AddExample(c == label, checked.score(row, c), weight);
  }
}

void ROCMultiClass::Merge(const ROCMultiClass& other) {
  MergeRocs(kMultiClass, other.rocs_, rocs_);
}
void ROCMultiClass::MergeSerialized(absl::string_view state) {
  MergeState(kMultiClass, state, rocs_);
}
std::string ROCMultiClass::Serialize() const { return StateOf(kMultiClass, rocs_); }
void ROCMultiClass::Reset() {
  for (ROC& roc : rocs_) roc.Reset();
}

std::string ROCMultiClass::Report() const {
  return absl::StrCat("examples ", rocs_[0].count(), "  classes ", classes(), "\nmacro AUC     ",
                      ValueText(MacroAUC()), "\nweighted AUC  ", ValueText(WeightedAUC()),
                      "\nmacro AUPRC   ", ValueText(MacroAUPRC()), "\n\n",
                      Table("class", rocs_, names_));
}

}  // namespace tidepool
