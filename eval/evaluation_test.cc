#include "tidepool/eval/evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/eval/confusion_matrix.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/allocation_counter.h"

namespace tidepool {
namespace {

using absl::StatusCode;
using Classes = std::vector<int64_t>;

constexpr double kTiny = 1e-12;

// Class 3 is predicted once and never occurs; class 4 neither.
//            predicted 0  1  2  3
//   label 0            2  1  .  1
//   label 1            1  2  .  .
//   label 2            1  1  3  .
Evaluation ByHand(int classes = 4) {
  Evaluation evaluation(classes);
  evaluation.Add(Classes{0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2},
                 Classes{0, 0, 1, 3, 1, 1, 0, 2, 2, 2, 0, 1});
  return evaluation;
}

TEST(Evaluation, ByHandAndAsScikitLearn) {
  const Evaluation evaluation = ByHand();
  EXPECT_EQ(evaluation.count(), 12);
  EXPECT_EQ(evaluation.TruePositives(0), 2);
  EXPECT_EQ(evaluation.FalsePositives(0), 2);
  EXPECT_EQ(evaluation.FalseNegatives(0), 2);
  EXPECT_EQ(evaluation.TrueNegatives(0), 6);
  EXPECT_DOUBLE_EQ(evaluation.Accuracy(), 7.0 / 12);
  const double precision[] = {0.5, 0.5, 1, 0}, recall[] = {0.5, 2.0 / 3, 0.6, 0},
               f1[] = {0.5, 4.0 / 7, 0.75, 0};
  // scikit-learn 1.9: matthews_corrcoef(y == c, p == c)
  const double matthews[] = {0.25, 0.40824829046386302, 0.68313005106397318, 0};
  for (int c = 0; c < 4; ++c) {
    EXPECT_NEAR(evaluation.Precision(c), precision[c], kTiny);
    EXPECT_NEAR(evaluation.Recall(c), recall[c], kTiny);
    EXPECT_NEAR(evaluation.F1(c), f1[c], kTiny);
    EXPECT_NEAR(evaluation.MatthewsCorrelation(c), matthews[c], kTiny);
  }
  EXPECT_NEAR(evaluation.FalsePositiveRate(0), 2.0 / 8, kTiny);
  EXPECT_NEAR(evaluation.MatthewsCorrelation(), 0.41871627723040428, kTiny);
  // labels=[0,1,2,3], zero_division=0
  EXPECT_NEAR(evaluation.MacroPrecision(ZeroDivision::kZero), 0.5, kTiny);
  EXPECT_NEAR(evaluation.MacroRecall(ZeroDivision::kZero), 0.44166666666666665, kTiny);
  EXPECT_NEAR(evaluation.MacroF1(ZeroDivision::kZero), 0.45535714285714285, kTiny);
  // zero_division=nan, which leaves out like DL4J; DL4J also leaves class 3 out of F1.
  EXPECT_NEAR(evaluation.MacroPrecision(), 0.5, kTiny);
  EXPECT_NEAR(evaluation.MacroRecall(), 0.5888888888888889, kTiny);
  EXPECT_NEAR(evaluation.MacroF1(), (0.5 + 4.0 / 7 + 0.75) / 3, kTiny);
  for (const double micro :
       {evaluation.MicroPrecision(), evaluation.MicroRecall(), evaluation.MicroF1()}) {
    EXPECT_DOUBLE_EQ(micro, 7.0 / 12);
  }
}

TEST(Evaluation, AClassThatNeverAppears) {
  const Evaluation evaluation = ByHand(5);
  EXPECT_EQ(evaluation.Precision(4) + evaluation.Recall(4) + evaluation.F1(4) +
                evaluation.MatthewsCorrelation(4) + evaluation.FalsePositiveRate(4),
            0);
  EXPECT_NEAR(evaluation.MacroPrecision(), 0.5, kTiny);
  EXPECT_NEAR(evaluation.MacroPrecision(ZeroDivision::kZero), 2.0 / 5, kTiny);
}

// The generator is repeated in Python to get scikit-learn's numbers:
//   state = (state * 6364136223846793005 + 1442695040888963407) % 2**64; return state >> 33
class Lcg {
 public:
  int64_t Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>(state_ >> 33);
  }

 private:
  uint64_t state_ = 1;
};

TEST(Evaluation, AThousandAsScikitLearn) {
  Lcg lcg;
  Classes labels, predictions;
  for (int i = 0; i < 1000; ++i) {
    const int64_t label = lcg.Next() % 10, other = lcg.Next() % 10, wrong = lcg.Next() % 3;
    labels.push_back(label);
    predictions.push_back(wrong != 0 ? label : other);
  }
  Evaluation evaluation(10);
  evaluation.Add(labels, predictions);
  EXPECT_NEAR(evaluation.Accuracy(), 0.72, kTiny);
  EXPECT_NEAR(evaluation.MacroPrecision(), 0.71736860062575114, kTiny);
  EXPECT_NEAR(evaluation.MacroRecall(), 0.71829634791771269, kTiny);
  EXPECT_NEAR(evaluation.MacroF1(), 0.716528047784178, kTiny);
  EXPECT_NEAR(evaluation.MatthewsCorrelation(), 0.68895930601405364, kTiny);
}

TEST(Evaluation, TopNAsScikitLearn) {
  Lcg lcg;
  std::vector<float> scores;
  for (int i = 0; i < 10000; ++i)
    scores.push_back(static_cast<float>(lcg.Next() % 1000 * 16 + i % 10));
  Classes labels;
  for (int i = 0; i < 1000; ++i) labels.push_back(lcg.Next() % 10);
  // top_k_accuracy_score(labels, scores, k=k, labels=range(10))
  const std::vector<std::pair<int, double>> expected = {
      {1, 0.084}, {2, 0.185}, {3, 0.268}, {5, 0.483}};
  for (const auto& [n, accuracy] : expected) {
    Evaluation evaluation(10, {}, n);
    evaluation.AddScores(labels, scores);
    EXPECT_NEAR(evaluation.TopNAccuracy(), accuracy, kTiny) << n;
    EXPECT_NEAR(evaluation.Accuracy(), expected[0].second, kTiny);
  }
}

// Every metric from its definition, example by example.
TEST(Evaluation, BruteForceOnRandomData) {
  std::mt19937_64 random(FuzzSeed());
  for (int round = 0; round < 200; ++round) {
    const int classes = 2 + static_cast<int>(random() % 6), n = static_cast<int>(random() % 40);
    const int top_n = 1 + static_cast<int>(random() % classes);
    Classes labels(n), predictions(n);
    std::vector<float> scores(static_cast<size_t>(n) * classes);
    for (float& score : scores) score = static_cast<float>(random() % 8) - 4;  // many ties
    int correct = 0, in_top_n = 0;
    for (int i = 0; i < n; ++i) {
      labels[i] = static_cast<int64_t>(random() % classes);
      std::vector<int> order;
      for (int c = 0; c < classes; ++c) order.push_back(c);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return scores[i * classes + a] > scores[i * classes + b];
      });
      predictions[i] = order[0];
      correct += order[0] == labels[i];
      in_top_n += scores[i * classes + labels[i]] >= scores[i * classes + order[top_n - 1]];
    }
    Evaluation evaluation(classes, {}, top_n), halves(classes, {}, top_n),
        second(classes, {}, top_n);
    evaluation.AddScores(labels, scores);
    const size_t half = labels.size() / 2;
    halves.AddScores(absl::MakeConstSpan(labels).subspan(0, half),
                     absl::MakeConstSpan(scores).subspan(0, half * classes));
    second.AddScores(absl::MakeConstSpan(labels).subspan(half),
                     absl::MakeConstSpan(scores).subspan(half * classes));
    halves.Merge(second);
    ASSERT_EQ(halves.Report(), evaluation.Report());
    ASSERT_EQ(evaluation.count(), n);
    ASSERT_DOUBLE_EQ(evaluation.Accuracy(), n == 0 ? 0.0 : double(correct) / n);
    ASSERT_DOUBLE_EQ(evaluation.TopNAccuracy(), n == 0 ? 0.0 : double(in_top_n) / n);
    double precision_sum = 0, precision_classes = 0;
    for (int c = 0; c < classes; ++c) {
      double tp = 0, fp = 0, fn = 0, tn = 0;
      for (int i = 0; i < n; ++i) {
        const bool is = labels[i] == c, said = predictions[i] == c;
        (is ? (said ? tp : fn) : (said ? fp : tn)) += 1;
      }
      const auto ratio = [](double a, double b) { return b == 0 ? 0 : a / b; };
      ASSERT_EQ(evaluation.TrueNegatives(c), tn);
      ASSERT_NEAR(evaluation.Precision(c), ratio(tp, tp + fp), kTiny);
      ASSERT_NEAR(evaluation.Recall(c), ratio(tp, tp + fn), kTiny);
      ASSERT_NEAR(evaluation.F1(c), ratio(2 * tp, 2 * tp + fp + fn), kTiny);
      ASSERT_NEAR(evaluation.FalsePositiveRate(c), ratio(fp, fp + tn), kTiny);
      ASSERT_NEAR(
          evaluation.MatthewsCorrelation(c),
          ratio(tp * tn - fp * fn, std::sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))),
          kTiny);
      precision_sum += ratio(tp, tp + fp);
      precision_classes += tp + fp > 0;
    }
    ASSERT_NEAR(evaluation.MacroPrecision(),
                precision_classes == 0 ? 0 : precision_sum / precision_classes, kTiny);
    // The covariances of one-hot labels X and predictions Y: cov(X,Y) / sqrt(cov(X,X) cov(Y,Y)).
    double xy = 0, xx = 0, yy = 0;
    for (int c = 0; c < classes; ++c) {
      double x_mean = 0, y_mean = 0;
      for (int i = 0; i < n; ++i)
        x_mean += (labels[i] == c) / double(n), y_mean += (predictions[i] == c) / double(n);
      for (int i = 0; i < n; ++i) {
        const double x = (labels[i] == c) - x_mean, y = (predictions[i] == c) - y_mean;
        xy += x * y, xx += x * x, yy += y * y;
      }
    }
    ASSERT_NEAR(evaluation.MatthewsCorrelation(),
                xx < kTiny || yy < kTiny ? 0 : xy / std::sqrt(xx * yy), 1e-9);
  }
}

TEST(Evaluation, TwoClassesCorrelateAlike) {
  Evaluation evaluation(2);
  evaluation.Add(Classes{0, 0, 1, 1, 1}, Classes{0, 1, 1, 1, 0});
  EXPECT_NEAR(evaluation.MatthewsCorrelation(), evaluation.MatthewsCorrelation(1), kTiny);
  EXPECT_NEAR(evaluation.MatthewsCorrelation(0), evaluation.MatthewsCorrelation(1), kTiny);
  EXPECT_NEAR(evaluation.MatthewsCorrelation(), (2.0 * 1 - 1 * 1) / 6, kTiny);
}

TEST(Evaluation, LargeCountsDoNotOverflow) {
  Evaluation evaluation(2);
  evaluation.Add(Classes{0, 1, 1, 0}, Classes{0, 1, 1, 1});
  for (int i = 0; i < 45; ++i) evaluation.Merge(Evaluation(evaluation));  // times 2^45
  EXPECT_EQ(evaluation.count(), int64_t{4} << 45);
  EXPECT_NEAR(evaluation.MatthewsCorrelation(0), 2 / std::sqrt(12.0), kTiny);
  EXPECT_NEAR(evaluation.MatthewsCorrelation(), 2 / std::sqrt(12.0), kTiny);
}

TEST(Evaluation, NothingAddedIsZero) {
  Evaluation evaluation(3, {}, 2);
  evaluation.AddScores(Classes{}, std::vector<float>{});
  for (const double value :
       {evaluation.Accuracy(), evaluation.TopNAccuracy(), evaluation.MacroPrecision(),
        evaluation.MacroRecall(), evaluation.MacroF1(), evaluation.MicroF1(),
        evaluation.MatthewsCorrelation(), evaluation.MacroF1(ZeroDivision::kZero)}) {
    EXPECT_EQ(value, 0.0);
  }
  EXPECT_THAT(evaluation.Report(),
              testing::HasSubstr("3 classes never predicted, 3 without examples"));
}

TEST(Evaluation, TiesTakeTheFirstAndInfinitiesAreNumbers) {
  Evaluation evaluation(3, {}, 2);
  const float inf = std::numeric_limits<float>::infinity();
  evaluation.AddScores(Classes{1, 2, 0}, std::vector<float>{1, 1, 0, -inf, -inf, inf, 0, -1, -inf});
  EXPECT_EQ(evaluation.confusion().at(1, 0), 1);
  EXPECT_EQ(evaluation.confusion().at(2, 2), 1);
  EXPECT_EQ(evaluation.confusion().at(0, 0), 1);
  EXPECT_EQ(evaluation.TopNAccuracy(), 1.0);
}

TEST(Evaluation, TopNIsOverScoredExamplesOnly) {
  Evaluation evaluation(2, {}, 1);
  evaluation.Add(Classes{0, 0, 0}, Classes{1, 1, 1});
  EXPECT_EQ(evaluation.TopNAccuracy(), 0.0);
  evaluation.AddScores(Classes{1}, std::vector<float>{0, 1});
  EXPECT_EQ(evaluation.TopNAccuracy(), 1.0);
  EXPECT_EQ(evaluation.Accuracy(), 0.25);
  evaluation.Reset();
  EXPECT_EQ(evaluation.TopNAccuracy() + evaluation.count(), 0.0);
}

TEST(Evaluation, BadBatchesAddNothing) {
  Evaluation evaluation(2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto refusal = [&](const Classes& labels, const std::vector<float>& scores) {
    return ErrorOf([&] { evaluation.AddScores(labels, scores); });
  };
  EXPECT_THAT(refusal({0, 2}, {1, 0, 1, 0}),
              IsError(StatusCode::kInvalidArgument, {"label 1", "found 2", "expected 0..1"}));
  EXPECT_THAT(refusal({-1}, {1, 0}),
              IsError(StatusCode::kInvalidArgument, {"label 0", "found -1", "expected 0..1"}));
  EXPECT_THAT(
      refusal({0, 1}, {1, 0, 1, nan}),
      IsError(StatusCode::kInvalidArgument, {"row 1, class 1", "found NaN", "expected a number"}));
  EXPECT_THAT(
      refusal({0, 1}, {1, 0, 1}),
      IsError(StatusCode::kInvalidArgument, {"scores", "found 3", "2 labels x 2 classes = 4"}));
  EXPECT_THAT(refusal({0}, {1, 0, 1, 0}),
              IsError(StatusCode::kInvalidArgument, {"scores", "found 4", "= 2"}));
  EXPECT_THAT(ErrorOf([&] {
                evaluation.Add(Classes{0, 1}, Classes{0, 2});
              }),
              IsError(StatusCode::kInvalidArgument, {"prediction 1", "found 2", "expected 0..1"}));
  EXPECT_EQ(evaluation.count(), 0);
}

TEST(Evaluation, BadConstructionMergeAndClass) {
  EXPECT_THAT(ErrorOf([] { Evaluation evaluation(1); }),
              IsError(StatusCode::kInvalidArgument, {"classes", "found 1"}));
  EXPECT_THAT(ErrorOf([] {
                Evaluation evaluation(3, {"a", "b"});
              }),
              IsError(StatusCode::kInvalidArgument, {"names", "found 2", "expected none or 3"}));
  for (const int n : {0, 4}) {
    EXPECT_THAT(ErrorOf([n] { Evaluation evaluation(3, {}, n); }),
                IsError(StatusCode::kInvalidArgument,
                        {"top_n", "found " + std::to_string(n), "expected 1..3"}));
  }
  Evaluation evaluation(3);
  EXPECT_THAT(ErrorOf([&] { evaluation.Merge(Evaluation(4)); }),
              IsError(StatusCode::kInvalidArgument, {"merge", "found 4 classes", "expected 3"}));
  EXPECT_THAT(ErrorOf([&] { evaluation.Merge(Evaluation(3, {}, 2)); }),
              IsError(StatusCode::kInvalidArgument, {"merge", "found top_n 2", "expected 1"}));
  EXPECT_THAT(ErrorOf([&] { evaluation.Precision(3); }),
              IsError(StatusCode::kInvalidArgument, {"found 3", "0..2"}));
  EXPECT_THAT(ErrorOf([&] { evaluation.ClassName(-1); }),
              IsError(StatusCode::kInvalidArgument, {"found -1", "0..2"}));
}

TEST(Evaluation, AddingAllocatesNothing) {
  Evaluation evaluation(10, {}, 3), other(10, {}, 3);
  const Classes labels(64, 3), predictions(64, 4);
  const std::vector<float> scores(640, 0.1f);
  const int64_t before = AllocationCount();
  for (int i = 0; i < 10; ++i) {
    evaluation.Add(labels, predictions);
    evaluation.AddScores(labels, scores);
    evaluation.Merge(other);
  }
  evaluation.Reset();
  EXPECT_EQ(AllocationCount(), before);
  evaluation.Report();
  EXPECT_GT(AllocationCount(), before) << "the counter does not count";
}

TEST(Evaluation, ReportOfTenClassesStaysReadable) {
  std::vector<std::string> names;
  for (int c = 0; c < 10; ++c) names.push_back("digit " + std::to_string(c));
  names[7] = "a very long name of a class with \xc3\xa4\xc3\xb6\xc3\xbc";
  Evaluation evaluation(10, names, 3);
  for (int i = 0; i < 10000; ++i)
    evaluation.Add(Classes{i % 10}, Classes{i % 17 == 0 ? i % 7 : i % 10});
  const std::string report = evaluation.Report();
  std::istringstream lines(report);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    EXPECT_LE(line.size(), 80u) << line;
    ++count;
  }
  EXPECT_EQ(count, 9 + 12 + 1 + 12) << report;
  for (const char* part : {"examples 10000  classes 10\n", "accuracy          0.",
                           "top-3 accuracy    0.0000\n", "class  name ", "digit 9 ",
                           "a very long name of a ..", "predicted\n", "| count\n", "|  1000\n"}) {
    EXPECT_THAT(report, testing::HasSubstr(part));
  }
}

TEST(Evaluation, ReportOfTwoClassesWordForWord) {
  Evaluation evaluation(2);
  evaluation.Add(Classes{0, 0, 1, 1, 1}, Classes{0, 0, 0, 1, 1});
  EXPECT_EQ(evaluation.Report(),
            "examples 5  classes 2\n"
            "accuracy          0.8000\n"
            "macro precision   0.8333\n"
            "macro recall      0.8333\n"
            "macro F1          0.8000\n"
            "weighted F1       0.8000\n"
            "Matthews          0.6667\n"
            "Cohen's kappa     0.6154\n"
            "\n"
            "class  precision  recall      F1     count\n"
            "    0     0.6667  1.0000  0.8000         2\n"
            "    1     1.0000  0.6667  0.8000         3\n"
            "\n"
            "        predicted\n"
            "label  0 1 | count\n"
            "    0  2 . |     2\n"
            "    1  1 2 |     3\n");
}

TEST(Evaluation, ReportOfManyClassesListsTheCommonestConfusions) {
  Evaluation evaluation(100);
  for (int i = 0; i < 30; ++i) evaluation.Add(Classes{7, i}, Classes{9, i + 1});
  const std::string report = evaluation.Report();
  EXPECT_THAT(report, testing::HasSubstr(
                          "commonest confusions (20 of 31 kinds)\n      30  7 predicted as 9\n"
                          "       1  0 predicted as 1\n"));
  EXPECT_THAT(report, testing::Not(testing::HasSubstr("| count")));
}

}  // namespace
}  // namespace tidepool
