// All measures against scikit_learn_values.txt.
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/eval/evaluation_binary.h"
#include "tidepool/eval/evaluation_calibration.h"
#include "tidepool/eval/regression_evaluation.h"
#include "tidepool/eval/roc.h"
#include "tidepool/eval/testing/evaluation_data.h"

namespace tidepool {
namespace {

using Numbers = std::vector<double>;

// The values of each case; all of them must be asked for.
class Values : public testing::Test {
 protected:
  static std::map<std::string, Numbers>& All() {
    static std::map<std::string, Numbers>* const all = [] {
      auto* const values = new std::map<std::string, Numbers>;
      std::ifstream file("eval/scikit_learn_values.txt");
      std::string line;
      while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string name, word;
        words >> name;
        while (words >> word) (*values)[name].push_back(std::stod(word));
      }
      return values;
    }();
    return *all;
  }
  static std::set<std::string>& Seen() {
    static auto* const seen = new std::set<std::string>;
    return *seen;
  }

  static void Expect(const std::string& name, const Numbers& found) {
    SCOPED_TRACE(name);
    Seen().insert(name);
    const Numbers& expected = All()[name];
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::isfinite(expected[i])) {
        EXPECT_NEAR(found[i], expected[i], 1e-9 * std::fmax(1, std::abs(expected[i]))) << i;
      } else {
        EXPECT_EQ(std::isnan(found[i]), std::isnan(expected[i])) << i;
        if (!std::isnan(expected[i])) {
          EXPECT_EQ(found[i], expected[i]) << i;
        }
      }
    }
  }
};

TEST_F(Values, Roc) {
  const EvaluationData data = BinaryData();
  for (const bool weighted : {false, true}) {
    for (const int steps : {0, 10, 64}) {
      ROC roc(steps);
      roc.Add(data.Batch(weighted));
      const std::string name = std::string(weighted ? "roc_weighted" : "roc") +
                               (steps == 0 ? "" : "_" + std::to_string(steps));
      Expect(name + "/auc", {roc.AUC()});
      Expect(name + "/average_precision", {roc.AveragePrecision()});
      Expect(name + "/auprc", {roc.AUPRC()});
      Numbers curve, precision_recall;
      for (const RocPoint& point : roc.Curve())
        curve.insert(curve.end(),
                     {point.false_positive_rate, point.true_positive_rate, point.threshold});
      Expect(name + "/roc_curve", curve);
      for (const PrecisionRecallPoint& point : roc.PrecisionRecallCurve())
        precision_recall.insert(precision_recall.end(),
                                {point.recall, point.precision, point.threshold});
      Expect(name + "/pr_curve", precision_recall);
    }
  }
}

TEST_F(Values, Classes) {
  const EvaluationData data = ClassData();
  for (const bool weighted : {false, true}) {
    const std::string name = weighted ? "classes_weighted" : "classes";
    for (const int n : {2, 3}) {
      Evaluation evaluation(5, {}, n);
      evaluation.Add(data.Batch(weighted));
      Expect(name + "/top_" + std::to_string(n), {evaluation.TopNAccuracy()});
    }
    Evaluation evaluation(5);
    ROCMultiClass roc(5);
    EvaluationCalibration calibration(5);
    for (BaseEvaluation* e :
         {static_cast<BaseEvaluation*>(&evaluation), static_cast<BaseEvaluation*>(&roc),
          static_cast<BaseEvaluation*>(&calibration)}) {
      e->Add(data.Batch(weighted));
    }
    Numbers confusion, precision, recall, f1, matthews, auc, average_precision;
    for (int c = 0; c < 5; ++c) {
      for (int p = 0; p < 5; ++p) confusion.push_back(evaluation.confusion().Weight(c, p));
      precision.push_back(evaluation.Precision(c));
      recall.push_back(evaluation.Recall(c));
      f1.push_back(evaluation.F1(c));
      matthews.push_back(evaluation.MatthewsCorrelation(c));
      auc.push_back(roc.at(c).AUC());
      average_precision.push_back(roc.at(c).AveragePrecision());
    }
    Expect(name + "/accuracy", {evaluation.Accuracy()});
    Expect(name + "/confusion", confusion);
    Numbers each = precision;
    each.insert(each.end(), recall.begin(), recall.end());
    each.insert(each.end(), f1.begin(), f1.end());
    Expect(name + "/each", each);
    Expect(name + "/macro",
           {evaluation.MacroPrecision(), evaluation.MacroRecall(), evaluation.MacroF1()});
    Expect(name + "/micro",
           {evaluation.MicroPrecision(), evaluation.MicroRecall(), evaluation.MicroF1()});
    Expect(name + "/weighted",
           {evaluation.WeightedPrecision(), evaluation.WeightedRecall(), evaluation.WeightedF1()});
    Expect(name + "/matthews", {evaluation.MatthewsCorrelation()});
    Expect(name + "/matthews_each", matthews);
    Expect(name + "/kappa", {evaluation.CohensKappa()});
    Expect(name + "/auc_each", auc);
    Expect(name + "/auc", {roc.MacroAUC(), roc.WeightedAUC()});
    Expect(name + "/average_precision", average_precision);
    Expect(name + "/brier", {calibration.BrierScore()});
    if (!weighted) Expect(name + "/brier_by_name", {calibration.BrierScore()});
  }
}

Numbers Points(const std::vector<ReliabilityBin>& bins) {
  Numbers points;
  for (const ReliabilityBin& bin : bins)
    if (bin.weight > 0) points.insert(points.end(), {bin.mean_probability, bin.frequency});
  return points;
}

TEST_F(Values, Calibration) {
  const EvaluationData data = ClassData();
  EvaluationCalibration calibration(5, 7, 8), weighted(5, 7, 8);
  calibration.Add(data.Batch(false));
  weighted.Add(data.Batch(true));
  for (int c = 0; c < 5; ++c) {
    Expect("reliability/" + std::to_string(c), Points(calibration.Reliability(c)));
    Numbers probabilities = calibration.ProbabilityHistogram(c),
            residuals = calibration.ResidualHistogram(c);
    for (const double value : weighted.ProbabilityHistogram(c)) probabilities.push_back(value);
    for (const double value : weighted.ResidualHistogram(c)) residuals.push_back(value);
    Expect("probabilities/" + std::to_string(c), probabilities);
    Expect("residuals/" + std::to_string(c), residuals);
  }
  Expect("confidence", Points(calibration.Confidence()));
  Expect("calibration_error",
         {calibration.ExpectedCalibrationError(), calibration.MaximumCalibrationError()});
  Expect("calibration_error_weighted",
         {weighted.ExpectedCalibrationError(), weighted.MaximumCalibrationError()});
  Numbers sum(8);
  for (int c = 0; c < 5; ++c)
    for (int i = 0; i < 8; ++i) sum[i] += weighted.ResidualHistogram(c)[i];
  EXPECT_EQ(weighted.ResidualHistogram(), sum);
}

TEST_F(Values, Outputs) {
  const EvaluationData data = OutputData();
  EvaluationBinary evaluation(4, {}, {0.5, 0.25, 0.75, 0.5}), whole(4, {}, {0.5, 0.25, 0.75, 0.5});
  ROCBinary roc(4);
  evaluation.Add(data.Batch(true));
  whole.Add(data.Batch(false));
  roc.Add(data.Batch(true));
  for (int c = 0; c < 4; ++c) {
    Expect("outputs/" + std::to_string(c),
           {evaluation.Accuracy(c), evaluation.Precision(c), evaluation.Recall(c), evaluation.F1(c),
            evaluation.MatthewsCorrelation(c), evaluation.TrueNegatives(c),
            evaluation.FalsePositives(c), evaluation.FalseNegatives(c), evaluation.TruePositives(c),
            roc.at(c).AUC()});
  }
  Expect("outputs/micro",
         {evaluation.MicroPrecision(), evaluation.MicroRecall(), evaluation.MicroF1()});
  Expect("outputs_whole/macro", {whole.MacroPrecision(), whole.MacroRecall(), whole.MacroF1()});
  Expect("outputs_whole/micro", {whole.MicroPrecision(), whole.MicroRecall(), whole.MicroF1()});
  Expect("outputs_whole/weighted",
         {whole.WeightedPrecision(), whole.WeightedRecall(), whole.WeightedF1()});
}

TEST_F(Values, Regression) {
  const RegressionData data = RegressionNumbers();
  for (const bool weighted : {false, true}) {
    const std::string name = weighted ? "regression_weighted/" : "regression/";
    RegressionEvaluation evaluation(3);
    evaluation.Add(data.Batch(weighted));
    for (int c = 0; c < 3; ++c) {
      Expect(name + std::to_string(c),
             {evaluation.MSE(c), evaluation.MAE(c), evaluation.RMSE(c), evaluation.RSE(c),
              evaluation.R2(c), evaluation.Correlation(c)});
    }
    Expect(name + "mean", {evaluation.MeanMSE(), evaluation.MeanMAE(), evaluation.MeanRMSE(),
                           evaluation.MeanR2()});
  }
}

ROC RocOf(const Numbers& labels, const Numbers& scores) {
  ROC roc;
  EvaluationBatch batch;
  batch.labels = labels;
  batch.scores = scores;
  roc.Add(batch);
  return roc;
}

Evaluation ClassesOf(const std::vector<int64_t>& labels, const std::vector<int64_t>& said) {
  Evaluation evaluation(2);
  evaluation.Add(labels, said);
  return evaluation;
}

RegressionEvaluation RegressionOf(const Numbers& labels, const Numbers& scores) {
  RegressionEvaluation evaluation(1);
  EvaluationBatch batch;
  batch.labels = labels;
  batch.scores = scores;
  evaluation.Add(batch);
  return evaluation;
}

// Numbers far from 0 spread as those near it do: what is added to all changes no score.
TEST_F(Values, RegressionFarFromZero) {
  const Numbers labels = {-1, 3, 0, 2, -2, 5, 1, 1, -4, 2},
                scores = {0, 2, 0, 3, -3, 4, 2, 0, -3, 2},
                weights = {0.1, 0.7, 0.3, 1, 0.9, 0.2, 0.6, 0.4, 0.8, 0.5};
  const auto scores_at = [&](double origin) {
    Numbers far_labels, far_scores;
    for (const double label : labels) far_labels.push_back(origin + label);
    for (const double score : scores) far_scores.push_back(origin + score);
    RegressionEvaluation evaluation(1);
    EvaluationBatch batch;
    batch.labels = far_labels;
    batch.scores = far_scores;
    batch.weights = weights;
    evaluation.Add(batch);
    return Numbers{evaluation.MSE(0), evaluation.RSE(0), evaluation.R2(0),
                   evaluation.Correlation(0)};
  };
  const Numbers near = scores_at(0);
  for (const double origin : {1e3, 1e9 + 7, 1e13, 1e15, -1e15 - 2}) {
    const Numbers far = scores_at(origin);
    for (size_t i = 0; i < near.size(); ++i)
      EXPECT_NEAR(far[i], near[i], 1e-14 * std::abs(near[i])) << origin << " " << i;
  }
}

TEST_F(Values, WhatThereIsNoObviousAnswerTo) {
  Expect("edge/auc_one_class", {RocOf({1, 1}, {0.2, 0.4}).AUC()});
  Expect("edge/auc_constant", {RocOf({0, 1, 1}, {0.5, 0.5, 0.5}).AUC()});
  Expect("edge/average_precision_constant", {RocOf({0, 1, 1}, {0.5, 0.5, 0.5}).AveragePrecision()});
  Expect("edge/average_precision_all_positive", {RocOf({1, 1}, {0.2, 0.4}).AveragePrecision()});
  Expect("edge/average_precision_no_positive", {RocOf({0, 0}, {0.2, 0.4}).AveragePrecision()});
  Expect("edge/kappa_one_class", {ClassesOf({0, 0}, {0, 0}).CohensKappa()});
  Expect("edge/kappa_one_class_said", {ClassesOf({0, 1}, {0, 0}).CohensKappa()});
  Expect("edge/matthews_one_class", {ClassesOf({0, 0}, {0, 0}).MatthewsCorrelation()});
  Expect("edge/r2_constant_right", {RegressionOf({3, 3}, {3, 3}).R2(0)});
  Expect("edge/r2_constant_wrong", {RegressionOf({3, 3}, {3, 4}).R2(0)});
  Expect("edge/r2_one_example", {RegressionOf({3}, {4}).R2(0)});
  Expect("edge/correlation_constant", {RegressionOf({1, 2, 3}, {5, 5, 5}).Correlation(0)});
  // Where scikit-learn has no answer, or another one.
  EXPECT_TRUE(std::isnan(ROC().AUC()) && std::isnan(ROC().AUPRC()));
  EXPECT_EQ(ROC().AveragePrecision(), 0);
  EXPECT_TRUE(std::isnan(RocOf({0, 0}, {0.2, 0.4}).AUPRC()));
  EXPECT_EQ(RegressionOf({3, 3}, {3, 4}).RSE(0), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(EvaluationCalibration(2).ExpectedCalibrationError()));
  EXPECT_TRUE(std::isnan(EvaluationCalibration(2).BrierScore()));
  EXPECT_TRUE(std::isnan(RegressionEvaluation(1).MSE(0)));
  EXPECT_EQ(EvaluationBinary(1).MacroF1(), 0);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(RocOf({0, 1, 1, 0}, {-kInfinity, kInfinity, 0, 0}).AUC(), 0.875);
}

// The last one, by its name too.
TEST_F(Values, ZAllOfThemWereCompared) {
  if (testing::GTEST_FLAG(filter) != "*") GTEST_SKIP() << "of a part of the tests";
  EXPECT_GT(All().size(), 100u);
  for (const auto& [name, numbers] : All()) EXPECT_EQ(Seen().count(name), 1u) << name;
}

}  // namespace
}  // namespace tidepool
