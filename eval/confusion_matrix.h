// How often each class was predicted for each label.
//
// Rows are labels (what is true), columns predictions. All metrics of a classifier's decisions
// follow from it; see evaluation.h. Threads: const calls from several threads are safe, Add and
// Merge are not. Memory: classes^2 counters of 8 bytes, taken at construction; Add and Merge
// allocate nothing, but for classes^2 sums of 16 bytes at the first weight other than 1.
#ifndef TIDEPOOL_EVAL_CONFUSION_MATRIX_H_
#define TIDEPOOL_EVAL_CONFUSION_MATRIX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/eval/sums.h"

namespace tidepool {

class ConfusionMatrix {
 public:
  // At most this many, so that the counters take at most 2 GiB.
  static constexpr int kMaxClasses = 16384;

  // Throws kInvalidArgument unless 2 <= classes <= kMaxClasses.
  explicit ConfusionMatrix(int classes);

  int classes() const { return classes_; }
  // Examples added.
  int64_t total() const { return total_; }
  // Throws kInvalidArgument for a class out of range, as do all calls with a class.
  int64_t at(int label, int prediction) const;
  // Examples with this label, whatever was predicted.
  int64_t LabelCount(int label) const;
  // Examples for which this class was predicted, whatever their label.
  int64_t PredictionCount(int prediction) const;
  // Examples on the diagonal.
  int64_t correct() const { return correct_; }

  // Sums of weights; the counts while every weight was 1.
  bool is_weighted() const { return !weights_.empty(); }
  double Weight(int label, int prediction) const;
  double LabelWeight(int label) const;
  double PredictionWeight(int prediction) const;
  double total_weight() const;
  double correct_weight() const;
  // Of one class against all others, exactly: differences of the above are rounded, and lose small
  // weights beside large ones.
  struct ClassWeights {
    double true_positive, false_positive, false_negative, true_negative;
    double negative;  // false positive and true negative
  };
  ClassWeights AgainstOthers(int c) const;
  // Of each class, in the time of one.
  std::vector<ClassWeights> AgainstOthers() const;

  // One example. Throws kInvalidArgument for a class out of range.
  void Add(int64_t label, int64_t prediction);
  // With a weight above 0 (WeightSum).
  void Add(int64_t label, int64_t prediction, double weight);
  // Examples i: labels[i], predictions[i]. Throws kInvalidArgument, naming the index, when lengths
  // differ or a class is out of range; then nothing was added.
  void Add(absl::Span<const int64_t> labels, absl::Span<const int64_t> predictions);
  // Adds the counts of another one. Throws kInvalidArgument unless it has as many classes.
  void Merge(const ConfusionMatrix& other);
  void Reset();
  void Write(StateWriter& writer) const;
  // Of as many classes. Throws as StateReader does; what was here is gone then.
  void Read(StateReader& reader);

  // A table with row and column numbers and totals of labels, right-aligned, zeros as dots:
  //
  //             predicted
  //   label     0    1    2 | count
  //       0    52    .    1 |    53
  //
  // One line per class: fit for some 20 classes.
  std::string ToString() const;

 private:
  void RequireClass(int64_t value, const char* what) const;
  void MakeWeights();
  // Of weights_[first + i * step], one for each class.
  WeightSum WeightsFrom(size_t first, size_t step) const;
  WeightSum TotalSum() const;
  ClassWeights AgainstOthers(int c, const WeightSum& total) const;

  int classes_;
  int64_t total_ = 0;
  int64_t correct_ = 0;
  std::vector<int64_t> counts_;             // [label, prediction]
  std::vector<int64_t> label_counts_;       // sums of rows
  std::vector<int64_t> prediction_counts_;  // sums of columns
  std::vector<WeightSum> weights_;          // [label, prediction]; empty while every weight was 1
};

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_CONFUSION_MATRIX_H_
