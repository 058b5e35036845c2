// The text of Evaluation::Report().
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/eval/report_text.h"

namespace tidepool {
namespace {

constexpr int kMaxMatrixClasses = 20;
constexpr size_t kMaxConfusions = 20;

}  // namespace

std::string Evaluation::Confusions() const {
  if (classes() <= kMaxMatrixClasses) return confusion_.ToString();
  std::vector<std::tuple<int64_t, int, int>> pairs;  // count, label, prediction
  for (int label = 0; label < classes(); ++label) {
    for (int prediction = 0; prediction < classes(); ++prediction) {
      const int64_t count = confusion_.at(label, prediction);
      if (count > 0 && label != prediction) pairs.emplace_back(count, label, prediction);
    }
  }
  const size_t shown = std::min(pairs.size(), kMaxConfusions);
  const auto commoner = [](const auto& a, const auto& b) {
    if (std::get<0>(a) != std::get<0>(b)) return std::get<0>(a) > std::get<0>(b);
    return a < b;
  };
  std::partial_sort(pairs.begin(), pairs.begin() + static_cast<ptrdiff_t>(shown), pairs.end(),
                    commoner);
  std::string text =
      absl::StrFormat("commonest confusions (%d of %d kinds)\n", shown, pairs.size());
  for (size_t i = 0; i < shown; ++i) {
    const auto& [count, label, prediction] = pairs[i];
    absl::StrAppendFormat(&text, "%8d  %s predicted as %s\n", count,
                          ShortenedName(ClassName(label)), ShortenedName(ClassName(prediction)));
  }
  return text;
}

std::string Evaluation::Report() const {
  std::string text = absl::StrFormat("examples %d  classes %d", count(), classes());
  if (confusion_.is_weighted())
    absl::StrAppendFormat(&text, "  weight %.6g", confusion_.total_weight());
  text += "\n";
  absl::StrAppendFormat(&text, "accuracy          %.4f\n", Accuracy());
  if (top_n_ > 1)
    absl::StrAppendFormat(&text, "%-17s %.4f\n", absl::StrCat("top-", top_n_, " accuracy"),
                          TopNAccuracy());
  absl::StrAppendFormat(&text,
                        "macro precision   %.4f\nmacro recall      %.4f\nmacro F1          %.4f\n",
                        MacroPrecision(), MacroRecall(), MacroF1());
  absl::StrAppendFormat(&text, "weighted F1       %.4f\n", WeightedF1());
  absl::StrAppendFormat(&text, "Matthews          %.4f\n", MatthewsCorrelation());
  absl::StrAppend(&text, "Cohen's kappa     ", ValueText(CohensKappa()), "\n");
  int never_predicted = 0, never_occurring = 0;
  for (int c = 0; c < classes(); ++c) {
    never_predicted += !IsPredicted(c);
    never_occurring += !Occurs(c);
  }
  if (never_predicted + never_occurring > 0) {
    absl::StrAppendFormat(
        &text, "left out of macro averages: %d classes never predicted, %d without examples\n",
        never_predicted, never_occurring);
  }
  size_t width = 5;
  for (int c = 0; c < classes(); ++c) width = std::max(width, ShortenedName(ClassName(c)).size());
  const int name_width = static_cast<int>(width);
  const bool named = !names_.empty();
  absl::StrAppendFormat(&text, "\n%5s  ", "class");
  if (named) absl::StrAppendFormat(&text, "%-*s  ", name_width, "name");
  text += "precision  recall      F1     count\n";
  for (int c = 0; c < classes(); ++c) {
    absl::StrAppendFormat(&text, "%5d  ", c);
    if (named) absl::StrAppendFormat(&text, "%-*s  ", name_width, ShortenedName(ClassName(c)));
    absl::StrAppendFormat(&text, "%9.4f  %6.4f  %6.4f  %8d\n", Precision(c), Recall(c), F1(c),
                          confusion_.LabelCount(c));
  }
  return absl::StrCat(text, "\n", Confusions());
}

}  // namespace tidepool
