// How well scores separate two classes, whatever the threshold: ROC and precision-recall curves and
// the areas under them. Successors of DL4J's ROC, ROCBinary and ROCMultiClass.
//
//   ROC roc;                       // exact: keeps 16 bytes for each example
//   ROC coarse(200);               // at thresholds 0, 1/200, ... 1: constant memory, scores 0 to 1
//   roc.Add({scores, labels});
//   std::cout << roc.Report();
//
// An example is called positive at a threshold when its score is not below it; examples of equal
// scores cross together. What is 0/0: AUC is NaN without positive or without negative examples,
// AveragePrecision is 0 without positive ones, as in scikit-learn; so is the precision of no
// examples 1 (the curve's start). AUPRC is NaN without positive examples, where scikit-learn's
// curve would give 0.5. Infinite scores are numbers (scikit-learn refuses them).
//
// Threads: const calls from several threads are safe; Add and Merge are not: give each thread its
// own and Merge them. Cost: adding takes no time to speak of and, when exact, memory that doubles
// as it grows; each call of a curve or an area sorts (exact), O(n log n).
#ifndef TIDEPOOL_EVAL_ROC_H_
#define TIDEPOOL_EVAL_ROC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/eval/base_evaluation.h"
#include "tidepool/eval/sums.h"

namespace tidepool {

class CheckedBatch;

// A point of the ROC curve.
struct RocPoint {
  double threshold;                                // infinite at the beginning
  double false_positive_rate, true_positive_rate;  // shares of what is negative, and positive
};

// A point of the precision-recall curve.
struct PrecisionRecallPoint {
  double threshold;          // infinite at the beginning
  double recall, precision;  // shares found of what is positive, and right of what was found
};

class ROC : public BaseEvaluation {
 public:
  // Throws kInvalidArgument unless 0 <= threshold_steps <= 1000000. 0: exact.
  explicit ROC(int threshold_steps = 0);

  // As constructed.
  int threshold_steps() const { return steps_; }
  bool is_exact() const { return steps_ == 0; }
  // Examples added, of a weight above 0.
  int64_t count() const { return count_; }
  // Those of them whose label is 1: how many, and the sum of their weights.
  int64_t positive_count() const { return positive_count_; }
  double positive_weight() const;

  // Scores [rows, 1] of being positive, or [rows, 2] of which the second counts; labels 0 or 1,
  // with two columns also [rows, 2]. Weights are of rows.
  void Add(const EvaluationBatch& batch) override;
  // One example, unchecked: a score that is no NaN (from 0 to 1 unless exact) and a weight as
  // WeightSum takes it.
  void AddExample(bool positive, double score, double weight);
  // Throws kInvalidArgument unless the threshold steps are equal. The other one is not this one.
  void Merge(const ROC& other);
  void MergeSerialized(absl::string_view state) override;
  std::string Serialize() const override;
  void Reset() override;

  // Area under the ROC curve: the chance that a positive example has a higher score than a negative
  // one, ties half.
  double AUC() const;
  // Area under the precision-recall curve by trapezoids (DL4J); optimistic where the curve has few
  // points.
  double AUPRC() const;
  // The same area by steps: the sum of precision times what recall gains; scikit-learn's
  // average_precision_score.
  double AveragePrecision() const;

  // From (0, 0) to (1, 1), thresholds falling, without points on a straight line between their
  // neighbours. A rate without examples is NaN.
  std::vector<RocPoint> Curve() const;
  // From recall 0 and precision 1, thresholds falling; a point for each distinct score. Recall is 1
  // without positive examples.
  std::vector<PrecisionRecallPoint> PrecisionRecallCurve() const;
  // The curves as text to plot: a line of names, then a line for each point, columns divided by
  // tabs.
  std::string CurveTsv() const;
  std::string PrecisionRecallTsv() const;

  std::string Report() const override;

  // For Serialize() of what has several of them. What is read is of as many threshold steps.
  void Write(StateWriter& writer) const;
  void Read(StateReader& reader);

 private:
  struct Example {
    double score;
    double weight;  // below 0: of a negative example
  };
  struct Bin {
    WeightSum positive, negative;
  };
  // All that have a score of at least `threshold`.
  struct Step {
    double threshold, positive, negative;
  };
  std::vector<Step> Steps() const;
  int64_t BinOf(double score) const;

  int steps_;
  int64_t count_ = 0, positive_count_ = 0;
  std::vector<Example> examples_;  // exact
  std::vector<Bin> bins_;          // bin k: scores from k / steps to below (k + 1) / steps
};

// A ROC for each of several independent yes-or-no outputs; weights may be of single outputs.
class ROCBinary : public BaseEvaluation {
 public:
  // Throws kInvalidArgument for columns outside of 1 to 2^20 or as ROC does; one name for each
  // column or none at all.
  explicit ROCBinary(int columns, int threshold_steps = 0, std::vector<std::string> names = {});

  // Columns from 0; one out of range throws kInvalidArgument.
  int columns() const { return static_cast<int>(rocs_.size()); }
  const ROC& at(int column) const;
  // Its number where there are no names.
  std::string name(int column) const;
  // Means over the columns where they are numbers; NaN if nowhere.
  double MeanAUC() const;
  double MeanAUPRC() const;

  // Scores and labels [rows, columns], labels 0 or 1.
  void Add(const EvaluationBatch& batch) override;
  void Merge(const ROCBinary& other);
  void MergeSerialized(absl::string_view state) override;
  std::string Serialize() const override;
  void Reset() override;
  std::string Report() const override;

 private:
  std::vector<ROC> rocs_;
  std::vector<std::string> names_;
};

// A ROC for each class against all others.
class ROCMultiClass : public BaseEvaluation {
 public:
  // Throws kInvalidArgument for classes outside of 2 to 16384 or as ROC does; one name for each
  // class or none at all.
  explicit ROCMultiClass(int classes, int threshold_steps = 0, std::vector<std::string> names = {});

  // Classes from 0; one out of range throws kInvalidArgument.
  int classes() const { return static_cast<int>(rocs_.size()); }
  const ROC& at(int c) const;
  // Its number where there are no names.
  std::string name(int c) const;
  // Means over the classes where they are numbers, NaN if nowhere: each class with the same weight
  // (scikit-learn's multi_class="ovr", which refuses data without some class), or by how much of
  // each class there is.
  double MacroAUC() const;
  double WeightedAUC() const;
  double MacroAUPRC() const;

  // Scores [rows, classes], labels as Evaluation takes them. Weights are of rows.
  void Add(const EvaluationBatch& batch) override;
  void Merge(const ROCMultiClass& other);
  void MergeSerialized(absl::string_view state) override;
  std::string Serialize() const override;
  void Reset() override;
  std::string Report() const override;

 private:
  std::vector<ROC> rocs_;
  std::vector<std::string> names_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_ROC_H_
