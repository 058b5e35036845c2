// What evaluations print, word for word, and what they refuse.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/eval/evaluation_binary.h"
#include "tidepool/eval/evaluation_calibration.h"
#include "tidepool/eval/regression_evaluation.h"
#include "tidepool/eval/roc.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/allocation_counter.h"

namespace tidepool {
namespace {

using absl::StatusCode;
using Numbers = std::vector<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Views of the arguments.
EvaluationBatch Batch(const Numbers& scores, const Numbers& labels, int64_t columns,
                      const Numbers& weights = {}) {
  EvaluationBatch batch;
  batch.scores = scores;
  batch.labels = labels;
  batch.weights = weights;
  batch.columns = columns;
  return batch;
}

void Add(BaseEvaluation& evaluation, const Numbers& scores, const Numbers& labels,
         int64_t columns = 1, const Numbers& weights = {}) {
  evaluation.Add(Batch(scores, labels, columns, weights));
}

TEST(Reports, Roc) {
  ROC roc;
  EXPECT_EQ(roc.Report(),
            "examples 0  positive 0  thresholds all\n"
            "AUC                undefined\n"
            "AUPRC              undefined\n"
            "average precision  0.0000\n");
  Add(roc, {0.9, 0.8, 0.4, 0.3, 0.3}, {1, 0, 1, 0, 1});
  EXPECT_EQ(roc.Report(),
            "examples 5  positive 3  thresholds all\n"
            "AUC                0.5833\n"
            "AUPRC              0.7389\n"
            "average precision  0.7556\n");
  EXPECT_EQ(roc.CurveTsv(),
            "threshold\tfalse_positive_rate\ttrue_positive_rate\n"
            "inf\t0\t0\n"
            "0.9\t0\t0.333333333\n"
            "0.8\t0.5\t0.333333333\n"
            "0.4\t0.5\t0.666666667\n"
            "0.3\t1\t1\n");
  EXPECT_EQ(roc.PrecisionRecallTsv(),
            "threshold\trecall\tprecision\n"
            "inf\t0\t1\n"
            "0.9\t0.333333333\t1\n"
            "0.8\t0.333333333\t0.5\n"
            "0.4\t0.666666667\t0.666666667\n"
            "0.3\t1\t0.6\n");
  ROC coarse(4);
  Add(coarse, {0.9, 0.8, 0.4, 0.3, 0.3}, {1, 0, 1, 0, 1});
  EXPECT_THAT(
      coarse.Report(),
      testing::StartsWith("examples 5  positive 3  thresholds 5\nAUC                0.4167\n"));
}

TEST(Reports, RocOfColumns) {
  ROCBinary outputs(2, 0, {"a cat", "na\xc3\xafve"});
  Add(outputs, {0.9, 0.1, 0.2, 0.3, 0.4, 0.2}, {1, 0, 0, 0, 1, 0}, 2);
  EXPECT_EQ(outputs.Report(),
            "outputs 2\n"
            "mean AUC    1.0000\n"
            "mean AUPRC  1.0000\n"
            "\n"
            "output        AUC      AUPRC  positive  negative\n"
            "a cat      1.0000     1.0000         2         1\n"
            "na\xc3\xafve   undefined  undefined         0         3\n");
  ROCMultiClass classes(2);
  Add(classes, {0.9, 0.1, 0.2, 0.8, 0.6, 0.4}, {0, 1, 1}, 2);
  EXPECT_EQ(classes.Report(),
            "examples 3  classes 2\n"
            "macro AUC     1.0000\n"
            "weighted AUC  1.0000\n"
            "macro AUPRC   1.0000\n"
            "\n"
            "class     AUC   AUPRC  positive  negative\n"
            "0      1.0000  1.0000         1         2\n"
            "1      1.0000  1.0000         2         1\n");
}

TEST(Reports, Outputs) {
  EvaluationBinary evaluation(2, {"cat", "dog"});
  Add(evaluation, {0.9, 0.1, 0.6, 0.3, 0.5, 0.7}, {1, 0, 0, 0, 1, 1}, 2, {1, 1, 2.5});
  EXPECT_EQ(evaluation.Report(),
            "outputs 2\n"
            "macro  accuracy 0.6111  precision 0.7500  recall 0.6429  F1 0.6818\n"
            "micro                   precision 0.7778  recall 0.5833  F1 0.6667\n"
            "\n"
            "output  accuracy  precision  recall      F1  Matthews   TP  FP   FN  TN  count\n"
            "cat       0.2222     0.5000  0.2857  0.3636   -0.5976    1   1  2.5   0      3\n"
            "dog       1.0000     1.0000  1.0000  1.0000    1.0000  2.5   0    0   2      3\n");
}

TEST(Reports, Calibration) {
  EvaluationCalibration evaluation(2);
  EXPECT_EQ(evaluation.Report(),
            "examples 0  classes 2\n"
            "expected calibration error  undefined\n"
            "maximum calibration error   undefined\n"
            "Brier score                 undefined\n"
            "\n"
            "confidence  said  right  weight\n");
  Add(evaluation, {0.75, 0.25, 0.125, 0.875, 1, 0, 0.25, 0.75}, {0, 1, 0, 0}, 2);
  EXPECT_EQ(evaluation.Report(),
            "examples 4  classes 2\n"
            "expected calibration error  0.1562\n"
            "maximum calibration error   0.2500\n"
            "Brier score                 0.3203\n"
            "\n"
            "confidence      said   right  weight\n"
            "0.70 to 0.80  0.7500  0.5000       2\n"
            "0.80 to 0.90  0.8750  1.0000       1\n"
            "0.90 to 1.00  1.0000  1.0000       1\n");
  EvaluationCalibration coarse(2, 2);
  Add(coarse, {0.5, 0.5, 0, 1}, {0, 0}, 2);
  EXPECT_EQ(coarse.ReliabilityTsv(0),
            "lower\tupper\tweight\tmean_probability\tfrequency\n0\t0.5\t2\t0.25\t1\n0."
            "5\t1\t0\tnan\tnan\n");
  EXPECT_EQ(
      coarse.ConfidenceTsv(),
      "lower\tupper\tweight\tmean_probability\tfrequency\n0\t0.5\t1\t0.5\t1\n0.5\t1\t1\t1\t0\n");
}

TEST(Reports, Regression) {
  RegressionEvaluation evaluation(2, {"height", "weight"});
  EXPECT_THAT(evaluation.Report(), testing::HasSubstr("height  undefined  undefined"));
  Add(evaluation, {1, 10, 2, 10, 4, 10}, {1, 20, 2, 30, 3, 40}, 2);
  EXPECT_EQ(evaluation.Report(),
            "column      MSE      MAE     RMSE   RSE  correlation       R2  count\n"
            "height  0.33333  0.33333  0.57735   0.5       0.9820   0.5000      3\n"
            "weight   466.67       20   21.602     7    undefined  -6.0000      3\n"
            "mean      233.5   10.167    11.09  3.75    undefined  -2.7500\n");
}

// Names of files may be any bytes; a report is lines.
TEST(Reports, NamesAreOnOneLine) {
  RegressionEvaluation evaluation(2, {"a\tb\nc", "\x1b[31mn\xc3\xb6\"t"});
  EXPECT_THAT(evaluation.Report(), testing::HasSubstr("\na\\tb\\nc       undefined"));
  EXPECT_THAT(evaluation.Report(), testing::HasSubstr("\n\\x1b[31mn\xc3\xb6\"t  undefined"));
  Evaluation classes(2, {"a\rb", "c\x7f"});
  Add(classes, {0.9, 0.1}, {1}, 2, {1});
  EXPECT_THAT(classes.Report(), testing::HasSubstr("    1  c\\x7f     0.0000"));
  EXPECT_THAT(classes.Report(), testing::HasSubstr("    0  a\\rb      0.0000"));
}

// Whose squares are no doubles.
TEST(Reports, RegressionOfTinyNumbers) {
  RegressionEvaluation evaluation(2);
  Add(evaluation, {1e-200, 1, 2e-200, 2, 4e-200, 3}, {1e-200, 1e-200, 2e-200, 2e-200, 3e-200, 0},
      2);
  EXPECT_EQ(evaluation.R2(0), 1);
  EXPECT_EQ(evaluation.RSE(0), 0);
  EXPECT_EQ(evaluation.R2(1), 0);
  EXPECT_TRUE(std::isinf(evaluation.RSE(1)));
}

TEST(Reports, WeightedClasses) {
  Evaluation evaluation(2);
  Add(evaluation, {0.9, 0.1, 0.2, 0.8, 0.6, 0.4}, {0, 1, 1}, 2, {0.5, 2, 1});
  EXPECT_THAT(evaluation.Report(), testing::StartsWith("examples 3  classes 2  weight 3.5\n"
                                                       "accuracy          0.7143\n"));
}

// A score that is a threshold belongs to it, however k / steps and its product are rounded.
TEST(Roc, ScoresAreRoundedDownToThresholds) {
  for (int steps = 1; steps < 200; ++steps) {
    for (int k = 0; k <= steps; ++k) {
      const double threshold = static_cast<double>(k) / steps;
      ROC roc(steps);
      roc.AddExample(true, threshold, 1);
      ASSERT_EQ(roc.PrecisionRecallCurve()[1].threshold, threshold) << k << " of " << steps;
      if (k == 0) continue;
      roc.Reset();
      roc.AddExample(true, std::nextafter(threshold, 0), 1);
      ASSERT_EQ(roc.PrecisionRecallCurve()[1].threshold, static_cast<double>(k - 1) / steps);
    }
  }
}

// ---- what is refused; nothing is added then ----

TEST(Refusals, NameRowColumnAndFinding) {
  const auto refused = [](BaseEvaluation&& evaluation, const EvaluationBatch& batch,
                          const std::string& message) {
    const std::string before = evaluation.Serialize();
    EXPECT_THAT(ErrorOf([&] { evaluation.Add(batch); }),
                IsError(StatusCode::kInvalidArgument, {message}));
    EXPECT_EQ(evaluation.Serialize(), before);
  };
  const Numbers one{1}, two{1, 0}, four{1, 0, 0, 1}, nan{1, kNaN}, nan4{1, 0, 0, kNaN},
      wide{0.5, 1.5}, half{0.5}, negative{-1}, large{2e6}, huge{1, 1e101}, third{1, 0, 1};
  refused(ROC(), Batch(nan, two, 1), "ROC: score of row 1, column 0: found NaN, expected a number");
  refused(ROC(), Batch(two, nan, 1), "ROC: label of row 1, column 0: found NaN, expected 0 or 1");
  refused(ROC(), Batch(one, half, 1), "ROC: label of row 0, column 0: found 0.5, expected 0 or 1");
  refused(ROC(10), Batch(wide, two, 1),
          "ROC: score of row 1, column 0: found 1.5, expected 0 to 1");
  refused(ROC(), Batch(two, one, 1), "ROC: labels: found 1, expected 2 for 2 rows of 1 scores");
  refused(ROC(), Batch(four, two, 4), "ROC: columns of scores: found 4, expected 1");
  refused(ROCBinary(2), Batch(nan4, four, 2), "ROCBinary: score of row 1, column 1: found NaN");
  refused(ROCBinary(2), Batch(third, third, 2), "ROCBinary: scores: found 3, expected rows of 2");
  refused(ROCMultiClass(2), Batch(four, nan, 2),
          "ROCMultiClass: label 1: found NaN, expected 0..1");
  refused(Evaluation(2), Batch(nan4, two, 2), "evaluation: score of row 1, class 1: found NaN");
  refused(Evaluation(2), Batch(two, half, 2), "evaluation: label 0: found 0.5, expected 0..1");
  const Numbers none{0, 0};
  refused(Evaluation(2), Batch(two, none, 2),
          "evaluation: label of row 0, class 0: found 0, expected a class whose");
  refused(Evaluation(2), Batch(two, nan, 2),
          "evaluation: label of row 0, class 1: found NaN, expected 0 or more");
  refused(Evaluation(2), Batch(four, two, 2, four),
          "weights: found 4, expected one for each of 2 rows");
  refused(Evaluation(2), Batch(four, two, 2, third),
          "weights: found 3, expected one for each of 2 rows");
  refused(ROCBinary(2), Batch(four, four, 2, third),
          "weights: found 3, expected one for each of 2 rows or of 4 scores");
  refused(ROC(), Batch(one, one, 1, negative), "ROC: weight 0: found -1, expected 0 to 1048576");
  refused(ROC(), Batch(one, one, 1, large), "ROC: weight 0: found 2e+06, expected 0 to 1048576");
  refused(ROC(), Batch(two, two, 1, nan), "ROC: weight 1: found NaN, expected 0 to 1048576");
  refused(EvaluationBinary(1), Batch(nan, two, 1),
          "EvaluationBinary: score of row 1, column 0: found NaN");
  refused(EvaluationCalibration(2), Batch(wide, one, 2),
          "EvaluationCalibration: score of row 0, class 1: found 1.5");
  refused(RegressionEvaluation(1), Batch(huge, two, 1),
          "score of row 1, column 0: found 1e+101, expected a size");
  refused(RegressionEvaluation(1), Batch(two, huge, 1),
          "label of row 1, column 0: found 1e+101, expected a size");
  refused(RegressionEvaluation(1), Batch(nan, two, 1),
          "RegressionEvaluation: score of row 1, column 0: found NaN");
}

TEST(Refusals, OfConfigurations) {
  const auto refused = [](absl::FunctionRef<void()> make, const std::string& message) {
    EXPECT_THAT(ErrorOf(make), IsError(StatusCode::kInvalidArgument, {message}));
  };
  refused([] { ROC(-1); }, "ROC: threshold steps: found -1, expected 0..1000000");
  refused([] { ROCBinary(0); }, "ROCBinary: columns: found 0, expected 1..1048576");
  refused([] { ROCMultiClass(1); }, "ROCMultiClass: classes: found 1, expected 2..16384");
  refused([] { ROCMultiClass(3, 0, {"a"}); }, "ROCMultiClass: names: found 1, expected none or 3");
  refused(
      [] {
        EvaluationBinary(2, {}, {0.5, 0.5, 0.5});
      },
      "thresholds: found 3, expected none, one or 2");
  refused([] { EvaluationBinary(1, {}, {kNaN}); },
          "EvaluationBinary: threshold: found nan, expected a finite number");
  refused([] { EvaluationCalibration(2, 0); },
          "EvaluationCalibration: reliability bins: found 0, expected 1..10000");
  refused([] { EvaluationCalibration(2, 10, 0); },
          "EvaluationCalibration: histogram bins: found 0, expected 1..10000");
  refused([] { RegressionEvaluation(0); },
          "RegressionEvaluation: columns: found 0, expected 1..1048576");
  refused([] { RegressionEvaluation(2).MSE(2); },
          "RegressionEvaluation: column: found 2, expected 0..1");
  refused([] { ROCBinary(2).at(-1); }, "ROCBinary: column: found -1, expected 0..1");
  refused([] { ROCMultiClass(2).at(2); }, "ROCMultiClass: class: found 2, expected 0..1");
  refused([] { EvaluationBinary(2).F1(2); }, "EvaluationBinary: column: found 2, expected 0..1");
  refused([] { EvaluationCalibration(2).Reliability(2); },
          "EvaluationCalibration: class: found 2, expected 0..1");
}

// A weight of 0 leaves out whatever is there: one of a row, of an example's positions, of an
// output.
// Three negatives of about 2^-30 beside two positives of 2^20, one of each called positive.
TEST(Weights, SmallOnesAreNotLostBesideLargeOnes) {
  constexpr double kLarge = 1 << 20, kSmall = 0x1.19p-30;
  Evaluation evaluation(2);
  Add(evaluation, {0, 1, 1, 0, 0, 1, 1, 0, 1, 0}, {1, 1, 0, 0, 0}, 2,
      {kLarge, kLarge, kSmall, kSmall, kSmall});
  EXPECT_DOUBLE_EQ(evaluation.FalsePositiveRate(1), 1.0 / 3);
  const double p = 1.0 / 2, n = 1.0 / 3;  // shares that are called positive
  // With all examples of a class alike, Matthews is (p - n) sqrt(P N / (called, not called)).
  const double called = kLarge + kSmall, rest = kLarge + 2 * kSmall;
  EXPECT_NEAR(evaluation.MatthewsCorrelation(1),
              (p - n) * std::sqrt(2 * kLarge * 3 * kSmall / called / rest), 1e-20);
  Evaluation nearly(2);
  Add(nearly, {0, 1, 0, 1, 0, 1, 1, 0, 1, 0}, {1, 1, 0, 0, 0}, 2,
      {kLarge, kLarge, kSmall, kSmall, kSmall});
  EXPECT_NEAR(nearly.CohensKappa(), 1 - (2 * kLarge + 3 * kSmall) / (10 * kLarge + 3 * kSmall),
              1e-15);
  EXPECT_NEAR(nearly.MatthewsCorrelation(), 4 / std::sqrt(24), 1e-14);
  EXPECT_NEAR(nearly.MatthewsCorrelation(1), 4 / std::sqrt(24), 1e-14);
  Evaluation all(2);
  Add(all, {0, 1, 1, 0, 0, 1, 0, 1, 0, 1}, {1, 1, 0, 0, 0}, 2,
      {kLarge, kLarge, kSmall, kSmall, kSmall});
  EXPECT_EQ(all.FalsePositiveRate(1), 1);
}

TEST(Weights, OfZeroLeaveOut) {
  Evaluation evaluation(2), expected(2);
  Add(evaluation, {0.9, 0.1, kNaN, 0, 0.3, 0.7, 0, 0}, {0, -100, 1, kNaN}, 2, {1, 0, 1, 0});
  Add(expected, {0.9, 0.1, 0.3, 0.7}, {0, 1}, 2);
  EXPECT_EQ(evaluation.Serialize(), expected.Serialize());
  evaluation.Reset();
  Add(evaluation, {0.9, 0.1, 0.3, 0.7, kNaN, 0, 0, 0}, {0, 1, 7, 8}, 2,
      {1, 0});  // of two sequences
  EXPECT_EQ(evaluation.Serialize(), expected.Serialize());
  RegressionEvaluation regression(2), expected_regression(2);
  Add(regression, {1, kNaN, 3, 4}, {2, 5, kNaN, 7}, 2, {1, 0, 0, 1});
  EXPECT_EQ(regression.count(0) + regression.count(1), 2);
  EXPECT_EQ(regression.MSE(0), 1);
  EXPECT_EQ(regression.MSE(1), 9);
}

TEST(Weights, TwoCountTwice) {
  const Numbers scores{0.9, 0.1, 0.3, 0.7}, twice_scores{0.9, 0.1, 0.3, 0.7, 0.3, 0.7};
  Evaluation evaluation(2), twice(2);
  Add(evaluation, scores, {0, 0}, 2, {1, 2});
  Add(twice, twice_scores, {0, 0, 0}, 2);
  EXPECT_EQ(evaluation.Accuracy(), twice.Accuracy());
  EXPECT_EQ(evaluation.WeightedF1(), twice.WeightedF1());
  EXPECT_EQ(evaluation.TruePositives(0), 1);  // a count, whatever the weights
}

TEST(Adding, AllocatesNothingButForExactCurves) {
  const Numbers scores(40, 0.25), classes(20, 1), binary(40, 1), weights(20, 1);
  const EvaluationBatch of_classes = Batch(scores, classes, 2, weights),
                        of_columns = Batch(scores, binary, 2, weights);
  Evaluation evaluation(2);
  ROCMultiClass roc(2, 50);
  EvaluationCalibration calibration(2);
  ROCBinary roc_binary(2, 50);
  EvaluationBinary outputs(2);
  RegressionEvaluation regression(2);
  ROC exact;
  const int64_t before = AllocationCount();
  for (int i = 0; i < 10; ++i) {
    for (BaseEvaluation* e :
         {static_cast<BaseEvaluation*>(&evaluation), static_cast<BaseEvaluation*>(&roc),
          static_cast<BaseEvaluation*>(&calibration)}) {
      e->Add(of_classes);
    }
    for (BaseEvaluation* e :
         {static_cast<BaseEvaluation*>(&roc_binary), static_cast<BaseEvaluation*>(&outputs),
          static_cast<BaseEvaluation*>(&regression)}) {
      e->Add(of_columns);
    }
  }
  EXPECT_EQ(AllocationCount(), before);
  exact.Add(of_classes);
  EXPECT_GT(AllocationCount(), before) << "the counter does not count";
}

}  // namespace
}  // namespace tidepool
