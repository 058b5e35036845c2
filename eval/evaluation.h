// Quality of a classifier's decisions: accuracy, precision, recall, F1, Matthews correlation,
// Cohen's kappa, top-N. Successor of DL4J's Evaluation.
//
//   Evaluation evaluation(10);
//   for (each batch) evaluation.AddScores(labels, scores);   // scores [n, 10], row-major
//   std::cout << evaluation.Report();
//
// What 0/0 is. Of one class: precision of a class never predicted, recall of a class that never
// occurs, F1 and Matthews correlation of either are 0, as in DL4J and in scikit-learn
// (zero_division=0). Of an average over classes (macro) there are two customs, see ZeroDivision;
// the default is DL4J's. Of no examples at all, everything is 0 (DL4J). With two classes DL4J's
// averages silently mean class 1 alone; here Precision(1) says so.
//
// With weights (base_evaluation.h) all metrics are of sums of weights; numbers of true positives
// and the like stay counts of examples.
//
// Threads: const calls from several threads are safe; Add and Merge are not: give each thread its
// own and Merge them. Memory: taken at construction; adding allocates nothing (but see
// ConfusionMatrix for the first weight).
#ifndef TIDEPOOL_EVAL_EVALUATION_H_
#define TIDEPOOL_EVAL_EVALUATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/eval/base_evaluation.h"
#include "tidepool/eval/confusion_matrix.h"
#include "tidepool/eval/sums.h"

namespace tidepool {

// What a class whose metric is 0/0 counts in a macro average.
enum class ZeroDivision {
  kExclude,  // it is left out (DL4J): precision if never predicted, recall if it never occurs, F1
             // if either
  kZero,     // it counts 0 (scikit-learn's zero_division=0 with labels=range(classes))
};

class Evaluation : public BaseEvaluation {
 public:
  // Throws kInvalidArgument unless classes is as ConfusionMatrix wants it, there is one name per
  // class or none at all, and 1 <= top_n <= classes.
  explicit Evaluation(int classes, std::vector<std::string> names = {}, int top_n = 1);

  // As constructed.
  int classes() const { return confusion_.classes(); }
  int top_n() const { return top_n_; }
  // Examples added.
  int64_t count() const { return confusion_.total(); }
  // Labels by predictions; valid as long as this is.
  const ConfusionMatrix& confusion() const { return confusion_; }
  // The given name, or the number.
  std::string ClassName(int c) const;

  // Adding. Throws kInvalidArgument naming index, found and expected, when lengths differ, a class
  // is out of range or a score is not a number; then nothing was added.
  void Add(absl::Span<const int64_t> labels, absl::Span<const int64_t> predictions);
  // scores[i * classes + c]: any number that grows with the belief in class c (probability, logit);
  // the infinities are numbers. The largest is the prediction, the first of equal ones.
  void AddScores(absl::Span<const int64_t> labels, absl::Span<const float> scores);
  // Of classes; labels [rows] are class numbers, those [rows, classes] count by their largest, the
  // first of equal ones. Weights are of rows.
  void Add(const EvaluationBatch& batch) override;
  // Throws kInvalidArgument unless classes and top_n are equal.
  void Merge(const Evaluation& other);
  void MergeSerialized(absl::string_view state) override;
  std::string Serialize() const override;
  void Reset() override;

  // Examples of class c, from 0, against all others; a c out of range throws kInvalidArgument.
  int64_t TruePositives(int c) const { return confusion_.at(c, c); }
  int64_t FalsePositives(int c) const { return confusion_.PredictionCount(c) - TruePositives(c); }
  int64_t FalseNegatives(int c) const { return confusion_.LabelCount(c) - TruePositives(c); }
  int64_t TrueNegatives(int c) const;

  // Share of examples predicted right.
  double Accuracy() const;
  // Share of examples whose label is among the top_n scores: fewer than top_n scores of its row are
  // larger, so ties count in favour (DL4J). Over the examples of AddScores; 0 if there are none.
  double TopNAccuracy() const;

  double Precision(int c) const;          // TP / (TP + FP)
  double Recall(int c) const;             // TP / (TP + FN)
  double F1(int c) const;                 // 2 TP / (2 TP + FP + FN)
  double FalsePositiveRate(int c) const;  // FP / (FP + TN)

  // Means over classes, each class with the same weight.
  double MacroPrecision(ZeroDivision zero = ZeroDivision::kExclude) const;
  double MacroRecall(ZeroDivision zero = ZeroDivision::kExclude) const;
  double MacroF1(ZeroDivision zero = ZeroDivision::kExclude) const;
  // Of the sums over classes. When each example has one label and one prediction, as here, FP and
  // FN have the same sum, so all three are the accuracy.
  double MicroPrecision() const;
  double MicroRecall() const;
  double MicroF1() const;
  // Means by how often a class occurs; scikit-learn's average="weighted" with zero_division=0.
  double WeightedPrecision() const;
  double WeightedRecall() const;
  double WeightedF1() const;

  // Agreement of labels and predictions beyond what chance gives, up to 1: (p - e) / (1 - e) with p
  // the accuracy and e that of as many labels and predictions of each class that know nothing of
  // each other. NaN where e is 1 (one class, all right) and of no examples, as scikit-learn's
  // cohen_kappa_score.
  double CohensKappa() const;
  // Correlation of "is class c" with "was predicted c", -1 to 1.
  double MatthewsCorrelation(int c) const;
  // Correlation of labels with predictions over all classes: R_K of J. Gorodkin, "Comparing two
  // K-category assignments by a K-category correlation coefficient", 2004; scikit-learn's
  // matthews_corrcoef.
  double MatthewsCorrelation() const;

  // Totals, a line per class and the confusion matrix; above 20 classes the matrix gives way to the
  // 20 commonest confusions. Ends with a newline.
  std::string Report() const override;

 private:
  template <typename Metric, typename Defined>
  double Macro(ZeroDivision zero, Metric metric, Defined defined) const;
  template <typename Metric>
  double Weighted(Metric metric) const;
  bool IsPredicted(int c) const { return confusion_.PredictionCount(c) > 0; }
  bool Occurs(int c) const { return confusion_.LabelCount(c) > 0; }
  std::string Confusions() const;

  ConfusionMatrix confusion_;
  std::vector<std::string> names_;
  int top_n_;
  WeightSum scored_;         // examples added with scores
  WeightSum top_n_correct_;  // of them
};

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_EVALUATION_H_
