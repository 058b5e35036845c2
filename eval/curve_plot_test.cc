// What pictures of curves show, in numbers and words.
#include "tidepool/eval/curve_plot.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/eval/testing/evaluation_data.h"

namespace tidepool {

bool operator==(const PlotPoint& a, const PlotPoint& b) { return a.x == b.x && a.y == b.y; }
void PrintTo(const PlotPoint& point, std::ostream* out) {
  *out << "(" << point.x << ", " << point.y << ")";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> Legend(const CurvePlot& plot) {
  std::vector<std::string> labels;
  for (const PlotCurve& curve : plot.curves) labels.push_back(curve.label);
  return labels;
}

// Scores 0.9 and 0.4 of positive, 0.8 and 0.1 of negative examples.
ROC SmallRoc() {
  ROC roc;
  roc.AddExample(true, 0.9, 1);
  roc.AddExample(false, 0.8, 1);
  roc.AddExample(true, 0.4, 1);
  roc.AddExample(false, 0.1, 1);
  return roc;
}

TEST(CurvePlot, OfARocHasItsAreaAndWhatChanceGives) {
  const CurvePlot plot = RocPlot(SmallRoc());
  EXPECT_THAT(Legend(plot), ElementsAre("chance", "AUC 0.7500"));
  EXPECT_TRUE(plot.curves[0].is_reference);
  EXPECT_THAT(plot.curves[0].points, ElementsAre(PlotPoint{0, 0}, PlotPoint{1, 1}));
  EXPECT_THAT(plot.curves[1].points,
              ElementsAre(PlotPoint{0, 0}, PlotPoint{0, 0.5}, PlotPoint{0.5, 0.5},
                          PlotPoint{0.5, 1}, PlotPoint{1, 1}));
  EXPECT_EQ(plot.x_title, "false positive rate");
  EXPECT_EQ(plot.y_title, "true positive rate");
  EXPECT_EQ(plot.note, "");
}

TEST(CurvePlot, OfPrecisionHasTheAreaThatItSays) {
  const ROC roc = SmallRoc();
  const CurvePlot plot = PrecisionRecallPlot(roc);
  EXPECT_THAT(Legend(plot), ElementsAre("all positive", "AP 0.8333"));
  EXPECT_THAT(plot.curves[0].points, ElementsAre(PlotPoint{0, 0.5}, PlotPoint{1, 0.5}));
  const std::vector<PlotPoint>& points = plot.curves[1].points;
  double area = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_TRUE(points[i].x == points[i - 1].x || points[i].y == points[i - 1].y) << i;
    area += (points[i].x - points[i - 1].x) * points[i].y;
  }
  EXPECT_DOUBLE_EQ(area, roc.AveragePrecision());
}

TEST(CurvePlot, OfNothingHasNoCurveAndSaysSo) {
  ROC positive;
  positive.AddExample(true, 0.5, 1);
  for (const ROC& roc : {ROC(), positive}) {
    const CurvePlot plot = RocPlot(roc);
    EXPECT_THAT(Legend(plot), ElementsAre("chance", "AUC undefined"));
    EXPECT_THAT(plot.curves[1].points, IsEmpty());
  }
  const CurvePlot none = PrecisionRecallPlot(ROC());
  EXPECT_THAT(Legend(none), ElementsAre("AP undefined"));
  EXPECT_THAT(none.curves[0].points, IsEmpty());
  EXPECT_THAT(PrecisionRecallPlot(positive).curves, SizeIs(2));
  const CurvePlot reliability = ReliabilityPlot(EvaluationCalibration(3));
  EXPECT_THAT(Legend(reliability), ElementsAre("calibrated", "predictions  ECE undefined"));
  EXPECT_THAT(reliability.bars, IsEmpty());
}

// Class c of 12 is told apart the better the larger c is; nothing is of the last one.
TEST(CurvePlot, OfManyClassesShowsTheWorst) {
  ROCMultiClass roc(12, 0, {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"});
  EvaluationData data;
  data.columns = 12;
  for (int row = 0; row < 660; ++row) {
    const int label = row % 11;
    for (int c = 0; c < 12; ++c) {
      const bool right = row / 11 < 30 + 2 * label;
      data.scores.push_back(c == label && right ? 1.0F : 0.001F * static_cast<float>(row % 7));
    }
    data.labels.push_back(label);
  }
  roc.Add(data.Batch(false));
  for (const CurvePlot& plot : {RocPlot(roc), PrecisionRecallPlot(roc)}) {
    std::vector<std::string> names;
    for (const PlotCurve& curve : plot.curves) {
      if (curve.is_reference) continue;
      names.push_back(curve.label.substr(0, curve.label.find(' ')));
    }
    EXPECT_EQ(plot.note, "2 classes of larger areas are not shown");
    EXPECT_THAT(names, SizeIs(kMostCurves));
    if (plot.title == "ROC of each class against the others") {
      EXPECT_THAT(names, ElementsAre("a", "b", "c", "d", "e", "f", "g", "h", "i", "j"));
    }
  }
  ROCBinary outputs(2, 0, {"a cat", "a dog that has far too long a name"});
  EXPECT_THAT(Legend(RocPlot(outputs)), ElementsAre("chance", "a cat  AUC undefined",
                                                    "a dog that has far too..  AUC undefined"));
}

TEST(CurvePlot, OfCalibrationHasThePointsOfBinsAndTheirShares) {
  EvaluationCalibration calibration(2, 5, 10, {"left", "right"});
  EvaluationData data;
  data.columns = 2;
  // Said 0.9 four times, right in three of them; said 0.7 once, and wrong.
  for (const auto& [right, label] :
       std::vector<std::pair<float, int>>{{0.9F, 1}, {0.9F, 1}, {0.9F, 0}, {0.9F, 1}, {0.7F, 0}}) {
    data.scores.push_back(1 - right);
    data.scores.push_back(right);
    data.labels.push_back(label);
  }
  calibration.Add(data.Batch(false));
  const CurvePlot all = ReliabilityPlot(calibration);
  EXPECT_THAT(Legend(all), ElementsAre("calibrated", "predictions  ECE 0.2600"));
  ASSERT_THAT(all.curves[1].points, SizeIs(2));
  EXPECT_NEAR(all.curves[1].points[0].x, 0.7, 1e-7);
  EXPECT_EQ(all.curves[1].points[0].y, 0);
  EXPECT_NEAR(all.curves[1].points[1].x, 0.9, 1e-7);
  EXPECT_EQ(all.curves[1].points[1].y, 0.75);
  EXPECT_TRUE(all.curves[1].has_dots);
  ASSERT_THAT(all.bars, SizeIs(2));
  EXPECT_EQ(all.bars[0].height, 0.2);
  EXPECT_EQ(all.bars[1].begin, 0.8);
  EXPECT_EQ(all.bars[1].end, 1);
  EXPECT_EQ(all.bars[1].height, 0.8);
  const CurvePlot left = ReliabilityPlot(calibration, 0);
  EXPECT_EQ(left.curves[1].label, "left  ECE 0.2600");
  EXPECT_EQ(left.curves[1].points[0].y, 0.25);
}

}  // namespace
}  // namespace tidepool
