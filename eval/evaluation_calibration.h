// Whether a classifier's probabilities are frequencies: reliability diagrams, expected calibration
// error, Brier score, histograms of probabilities and residuals. Successor of DL4J's
// EvaluationCalibration.
//
//   EvaluationCalibration calibration(10);
//   calibration.Add(batch);              // probabilities [rows, 10], from 0 to 1
//   calibration.Reliability(3);          // of "is class 3": said 0.8, is 0.72
//
// Reliability bins have equal widths and contain their upper bound, the first one also 0
// (scikit-learn's calibration_curve with strategy="uniform"); bins of histograms contain their
// lower bound, the last one also 1 (numpy.histogram).
//
// Threads: const calls from several threads are safe; Add and Merge are not. Memory: (reliability
// bins * 3 + histogram bins * 2) * 16 bytes for each class, taken at construction.
#ifndef TIDEPOOL_EVAL_EVALUATION_CALIBRATION_H_
#define TIDEPOOL_EVAL_EVALUATION_CALIBRATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/eval/base_evaluation.h"
#include "tidepool/eval/sums.h"

namespace tidepool {

// A bin of a reliability diagram.
struct ReliabilityBin {
  double lower, upper;      // bounds of the probabilities in it
  double weight;            // of what is in it; the number of examples unless they were weighted
  double mean_probability;  // that was said; NaN of nothing
  double frequency;         // of what was true; NaN of nothing
};

class EvaluationCalibration : public BaseEvaluation {
 public:
  // Throws kInvalidArgument for classes outside of 2 to 16384, bins outside of 1 to 10000, and
  // names that are neither none nor one for each class.
  explicit EvaluationCalibration(int classes, int reliability_bins = 10, int histogram_bins = 50,
                                 std::vector<std::string> names = {});

  // As constructed.
  int classes() const { return classes_; }
  int reliability_bins() const { return reliability_bins_; }
  int histogram_bins() const { return histogram_bins_; }
  // Examples added.
  int64_t count() const { return count_; }
  // Its number where there are no names.
  std::string name(int c) const;

  // Scores [rows, classes] from 0 to 1, labels as Evaluation takes them. Weights are of rows.
  void Add(const EvaluationBatch& batch) override;
  // Throws kInvalidArgument unless classes and bins are equal.
  void Merge(const EvaluationCalibration& other);
  void MergeSerialized(absl::string_view state) override;
  std::string Serialize() const override;
  void Reset() override;

  // Of "is class c" by the probability of class c: all bins, those of nothing too.
  std::vector<ReliabilityBin> Reliability(int c) const;
  // Of "the prediction is right" by its probability, the largest of its row.
  std::vector<ReliabilityBin> Confidence() const;
  // The mean difference of confidence and accuracy over the bins of Confidence(), by weight, and
  // the largest one (C. Guo et al., "On calibration of modern neural networks", 2017). NaN of no
  // examples.
  double ExpectedCalibrationError() const;
  double MaximumCalibrationError() const;
  // The same mean over the bins of Reliability(c).
  double ExpectedCalibrationError(int c) const;
  // The mean squared difference of probability and truth, summed over classes; from 0 to 2. NaN of
  // no examples.
  double BrierScore() const;
  // Weights by probability of class c, and by |truth - probability|: of bins of equal widths from 0
  // to 1.
  std::vector<double> ProbabilityHistogram(int c) const;
  std::vector<double> ResidualHistogram(int c) const;
  // Over all classes.
  std::vector<double> ResidualHistogram() const;

  // Text to plot, columns divided by tabs: of Confidence(), or of Reliability(c).
  std::string ConfidenceTsv() const;
  std::string ReliabilityTsv(int c) const;

  std::string Report() const override;

 private:
  struct Bin {
    WeightSum weight, probability, truth;
  };
  void Check(int c) const;
  int ReliabilityBinOf(double probability) const;
  int HistogramBinOf(double value) const;
  std::vector<ReliabilityBin> BinsFrom(size_t first) const;
  std::vector<double> Values(const std::vector<WeightSum>& histograms, int c) const;

  int classes_, reliability_bins_, histogram_bins_;
  int64_t count_ = 0;
  std::vector<Bin> bins_;  // [classes + 1, reliability bins]; the last ones are Confidence()'s
  std::vector<WeightSum> probabilities_, residuals_;  // [classes, histogram bins]
  WeightSum weight_, brier_;
  std::vector<std::string> names_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_EVALUATION_CALIBRATION_H_
