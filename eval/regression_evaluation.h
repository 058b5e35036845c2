// How far numbers are from the truth, column by column: squared and absolute errors, correlation,
// R2. Successor of DL4J's RegressionEvaluation.
//
//   RegressionEvaluation evaluation(2, {"height", "weight"});
//   evaluation.Add(batch);   // scores and labels [rows, 2]
//
// Sums are exact (sums.h), so that nothing is lost where values are large and differ little, and
// means are of one rounding. What is 0/0: R2 of a truth that is always the same is 1 where every
// prediction is right and else 0, correlation with what is always the same is NaN, as in
// scikit-learn and SciPy; the relative squared error is then 0 or infinite. Errors and spreads below
// 1e-150, whose squares are no doubles, count as none in squares. Of no examples all are
// NaN, of one example R2 and correlation are.
//
// Threads: const calls from several threads are safe; Add and Merge are not. Memory: 5 KB for each
// column, taken at construction.
#ifndef TIDEPOOL_EVAL_REGRESSION_EVALUATION_H_
#define TIDEPOOL_EVAL_REGRESSION_EVALUATION_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/eval/base_evaluation.h"
#include "tidepool/eval/sums.h"

namespace tidepool {

class RegressionEvaluation : public BaseEvaluation {
 public:
  // Throws kInvalidArgument for columns outside of 1 to 2^20; one name for each column or none at
  // all.
  explicit RegressionEvaluation(int columns, std::vector<std::string> names = {});

  int columns() const { return static_cast<int>(sums_.size()); }
  int64_t count(int column) const { return At(column).count; }

  // Scores and labels [rows, columns], finite and of a size up to 1e100. Weights may be of single
  // columns.
  void Add(const EvaluationBatch& batch) override;
  void Merge(const RegressionEvaluation& other);
  void MergeSerialized(absl::string_view state) override;
  std::string Serialize() const override;
  void Reset() override;

  double MSE(int column) const;          // mean of (prediction - truth)^2
  double MAE(int column) const;          // mean of |prediction - truth|
  double RMSE(int column) const;         // square root of MSE
  double RSE(int column) const;          // squared errors relative to those of the truth's mean
  double R2(int column) const;           // 1 - RSE
  double Correlation(int column) const;  // Pearson's
  // Means over columns, each with the same weight; NaN where one of them is.
  double MeanMSE() const { return Mean(&RegressionEvaluation::MSE); }
  double MeanMAE() const { return Mean(&RegressionEvaluation::MAE); }
  double MeanRMSE() const { return Mean(&RegressionEvaluation::RMSE); }
  double MeanRSE() const { return Mean(&RegressionEvaluation::RSE); }
  double MeanR2() const { return Mean(&RegressionEvaluation::R2); }
  double MeanCorrelation() const { return Mean(&RegressionEvaluation::Correlation); }

  std::string Report() const override;

 private:
  struct Sums {
    int64_t count = 0;
    ExactSum weight, label, score, label_squared, score_squared, product, error_squared, error_size;
    // What is always the same has no spread, whatever rounding says.
    double least_label = std::numeric_limits<double>::infinity(), most_label = -least_label;
    double least_score = least_label, most_score = -least_label;

    void Merge(const Sums& other);
    void Write(StateWriter& writer) const;
    void Read(StateReader& reader);
  };
  using Metric = double (RegressionEvaluation::*)(int) const;
  const Sums& At(int column) const;
  // Squared errors of the truth's mean, with its weights.
  static double Spread(const Sums& sums);
  double Mean(Metric metric) const;

  std::vector<Sums> sums_;
  std::vector<std::string> names_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_REGRESSION_EVALUATION_H_
