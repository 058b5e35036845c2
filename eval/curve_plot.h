// CurvePlot: what a picture of an evaluation's curves shows. picture.h draws it.
//
//   SavePicture(RocPlot(roc), "roc.svg");
//
// Both axes go from 0 to 1. Of more than kMostCurves outputs or classes those of the smallest areas
// are shown, and a note says how many are left out; what has no area has no curve either, and a line
// in the legend. Names are shortened as in reports.
//
// Cost: that of the curves (roc.h); 16 bytes for each of their points. Threads: pure functions.
#ifndef TIDEPOOL_EVAL_CURVE_PLOT_H_
#define TIDEPOOL_EVAL_CURVE_PLOT_H_

#include <string>
#include <vector>

#include "tidepool/eval/evaluation_calibration.h"
#include "tidepool/eval/roc.h"

namespace tidepool {

struct PlotPoint {
  double x, y;  // from 0 to 1
};

struct PlotCurve {
  std::string label;              // of the legend; empty: none
  std::vector<PlotPoint> points;  // joined by straight lines
  bool is_reference = false;      // what the others are held against: grey and dashed
  bool has_dots = false;          // at its points
};

struct PlotBar {
  double begin, end;  // along x
  double height;      // from 0 to 1
};

struct CurvePlot {
  enum class Corner { kTopLeft, kBottomLeft, kBottomRight };

  std::string title, x_title, y_title;
  std::vector<PlotCurve> curves;
  std::vector<PlotBar> bars;  // behind the curves
  std::string bars_label;
  std::string note;                      // the legend's last line; empty: none
  Corner legend = Corner::kBottomRight;  // where curves hardly ever are
};

inline constexpr int kMostCurves = 10;

// With AUC in the legend.
CurvePlot RocPlot(const ROC& roc);
CurvePlot RocPlot(const ROCBinary& roc);
CurvePlot RocPlot(const ROCMultiClass& roc);

// In steps, whose area is the average precision, which is in the legend. Of one ROC also what all
// examples called positive would give.
CurvePlot PrecisionRecallPlot(const ROC& roc);
CurvePlot PrecisionRecallPlot(const ROCBinary& roc);
CurvePlot PrecisionRecallPlot(const ROCMultiClass& roc);

// How often predictions are right, by the confidence with which they were made, with the expected
// calibration error; and of "is class c". Bars: the share of what counts in each bin.
CurvePlot ReliabilityPlot(const EvaluationCalibration& calibration);
CurvePlot ReliabilityPlot(const EvaluationCalibration& calibration, int c);

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_CURVE_PLOT_H_
