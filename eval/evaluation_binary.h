// Decisions of several independent yes-or-no outputs, each with a threshold of its own. Successor
// of DL4J's EvaluationBinary.
//
//   EvaluationBinary evaluation(3, {"cat", "dog", "bird"});
//   evaluation.Add(batch);   // scores [rows, 3] of probabilities, labels [rows, 3] of 0 and 1
//
// An output says yes when its score is above the threshold. What is 0/0 is 0, as in DL4J and
// scikit-learn (zero_division=0). Weights may be of single outputs (a label that is not known has
// weight 0).
//
// Threads: const calls from several threads are safe; Add and Merge are not. Memory: taken at
// construction.
#ifndef TIDEPOOL_EVAL_EVALUATION_BINARY_H_
#define TIDEPOOL_EVAL_EVALUATION_BINARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/eval/base_evaluation.h"
#include "tidepool/eval/sums.h"

namespace tidepool {

class EvaluationBinary : public BaseEvaluation {
 public:
  // Thresholds: none (0.5), one for all, or one for each column. Throws kInvalidArgument for
  // columns outside of 1 to 2^20, other numbers of names or thresholds, and thresholds that are not
  // finite.
  explicit EvaluationBinary(int columns, std::vector<std::string> names = {},
                            std::vector<double> thresholds = {});

  int columns() const { return static_cast<int>(counts_.size()); }
  double threshold(int column) const;

  void Add(const EvaluationBatch& batch) override;
  // Throws kInvalidArgument unless columns and thresholds are equal.
  void Merge(const EvaluationBinary& other);
  void MergeSerialized(absl::string_view state) override;
  std::string Serialize() const override;
  void Reset() override;

  // Examples of a weight above 0.
  int64_t count(int column) const { return At(column).count; }
  // Sums of weights.
  double TruePositives(int column) const { return At(column).sums[3].Value(); }
  double FalsePositives(int column) const { return At(column).sums[1].Value(); }
  double FalseNegatives(int column) const { return At(column).sums[2].Value(); }
  double TrueNegatives(int column) const { return At(column).sums[0].Value(); }

  double Accuracy(int column) const;
  double Precision(int column) const;
  double Recall(int column) const;
  double F1(int column) const;
  double FalsePositiveRate(int column) const;
  double MatthewsCorrelation(int column) const;
  // Means over columns, each with the same weight.
  double MacroAccuracy() const;
  double MacroPrecision() const;
  double MacroRecall() const;
  double MacroF1() const;
  // Of the sums over columns.
  double MicroPrecision() const;
  double MicroRecall() const;
  double MicroF1() const;
  // Means by how much of each column is positive.
  double WeightedPrecision() const;
  double WeightedRecall() const;
  double WeightedF1() const;

  std::string Report() const override;

 private:
  struct Counts {
    int64_t count = 0;
    WeightSum sums[4];  // [2 * label + said]
  };
  using Metric = double (EvaluationBinary::*)(int) const;
  const Counts& At(int column) const;
  double Macro(Metric metric) const;
  double Weighted(Metric metric) const;
  double Sum(Metric metric) const;

  std::vector<Counts> counts_;
  std::vector<std::string> names_;
  std::vector<double> thresholds_;  // one for each column
};

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_EVALUATION_BINARY_H_
