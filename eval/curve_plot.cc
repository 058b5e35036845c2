#include "tidepool/eval/curve_plot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tidepool/eval/report_text.h"

namespace tidepool {
namespace {

PlotCurve Reference(std::string label, PlotPoint from, PlotPoint to) {
  return {.label = std::move(label), .points = {from, to}, .is_reference = true};
}

std::string LabelOf(const std::string& name, const char* area, double value) {
  return absl::StrCat(ShortenedName(name), name.empty() ? "" : "  ", area, " ", ValueText(value));
}

PlotCurve RocCurve(const ROC& roc, const std::string& name) {
  const double area = roc.AUC();
  PlotCurve curve{.label = LabelOf(name, "AUC", area)};
  if (std::isnan(area)) return curve;
  for (const RocPoint& point : roc.Curve())
    curve.points.push_back({point.false_positive_rate, point.true_positive_rate});
  return curve;
}

PlotCurve PrecisionRecallCurve(const ROC& roc, const std::string& name) {
  if (roc.positive_count() == 0) return {.label = LabelOf(name, "AP", std::nan(""))};
  PlotCurve curve{.label = LabelOf(name, "AP", roc.AveragePrecision())};
  for (const PrecisionRecallPoint& point : roc.PrecisionRecallCurve()) {
    // What recall gains has the precision of the threshold that gains it.
    if (!curve.points.empty()) curve.points.push_back({curve.points.back().x, point.precision});
    curve.points.push_back({point.recall, point.precision});
  }
  return curve;
}

CurvePlot EmptyRocPlot() {
  CurvePlot plot{.title = "ROC",
                 .x_title = "false positive rate",
                 .y_title = "true positive rate",
                 .legend = CurvePlot::Corner::kBottomRight};
  plot.curves.push_back(Reference("chance", {0, 0}, {1, 1}));
  return plot;
}

CurvePlot EmptyPrecisionRecallPlot() {
  return {.title = "Precision and recall",
          .x_title = "recall",
          .y_title = "precision",
          .legend = CurvePlot::Corner::kBottomLeft};
}

// Curves of `columns`, or of the worst of them.
template <typename Rocs>
void AddCurves(const Rocs& rocs, int columns, const char* what, double (ROC::*area)() const,
               PlotCurve (*curve_of)(const ROC&, const std::string&), CurvePlot& plot) {
  std::vector<int> shown(static_cast<size_t>(columns));
  std::iota(shown.begin(), shown.end(), 0);
  if (columns > kMostCurves) {
    std::vector<double> areas;
    for (int i = 0; i < columns; ++i) areas.push_back((rocs.at(i).*area)());
    // Those without an area last, in either order.
    std::stable_sort(shown.begin(), shown.end(), [&](int a, int b) {
      const double of_a = areas[static_cast<size_t>(a)], of_b = areas[static_cast<size_t>(b)];
      return std::isnan(of_b) ? !std::isnan(of_a) : of_a < of_b;
    });
    shown.resize(kMostCurves);
    plot.note = absl::StrCat(columns - kMostCurves, " ", what, " of larger areas are not shown");
  }
  for (const int i : shown) plot.curves.push_back(curve_of(rocs.at(i), rocs.name(i)));
}

CurvePlot ReliabilityOf(const std::vector<ReliabilityBin>& bins, std::string label) {
  CurvePlot plot{.title = "Calibration",
                 .bars_label = "share of examples",
                 .legend = CurvePlot::Corner::kTopLeft};
  plot.curves.push_back(Reference("calibrated", {0, 0}, {1, 1}));
  PlotCurve curve{.label = std::move(label), .has_dots = true};
  double all = 0;
  for (const ReliabilityBin& bin : bins) all += bin.weight;
  for (const ReliabilityBin& bin : bins) {
    if (bin.weight == 0) continue;
    curve.points.push_back({bin.mean_probability, bin.frequency});
    plot.bars.push_back({bin.lower, bin.upper, bin.weight / all});
  }
  plot.curves.push_back(std::move(curve));
  return plot;
}

}  // namespace

CurvePlot RocPlot(const ROC& roc) {
  CurvePlot plot = EmptyRocPlot();
  plot.curves.push_back(RocCurve(roc, ""));
  return plot;
}

CurvePlot RocPlot(const ROCBinary& roc) {
  CurvePlot plot = EmptyRocPlot();
  AddCurves(roc, roc.columns(), "outputs", &ROC::AUC, &RocCurve, plot);
  return plot;
}

CurvePlot RocPlot(const ROCMultiClass& roc) {
  CurvePlot plot = EmptyRocPlot();
  plot.title = "ROC of each class against the others";
  AddCurves(roc, roc.classes(), "classes", &ROC::AUC, &RocCurve, plot);
  return plot;
}

CurvePlot PrecisionRecallPlot(const ROC& roc) {
  CurvePlot plot = EmptyPrecisionRecallPlot();
  PlotCurve curve = PrecisionRecallCurve(roc, "");
  if (!curve.points.empty()) {
    // The last threshold calls all examples positive.
    const double share = curve.points.back().y;
    plot.curves.push_back(Reference("all positive", {0, share}, {1, share}));
  }
  plot.curves.push_back(std::move(curve));
  return plot;
}

CurvePlot PrecisionRecallPlot(const ROCBinary& roc) {
  CurvePlot plot = EmptyPrecisionRecallPlot();
  AddCurves(roc, roc.columns(), "outputs", &ROC::AveragePrecision, &PrecisionRecallCurve, plot);
  return plot;
}

CurvePlot PrecisionRecallPlot(const ROCMultiClass& roc) {
  CurvePlot plot = EmptyPrecisionRecallPlot();
  plot.title = "Precision and recall of each class against the others";
  AddCurves(roc, roc.classes(), "classes", &ROC::AveragePrecision, &PrecisionRecallCurve, plot);
  return plot;
}

CurvePlot ReliabilityPlot(const EvaluationCalibration& calibration) {
  CurvePlot plot =
      ReliabilityOf(calibration.Confidence(),
                    LabelOf("predictions", "ECE", calibration.ExpectedCalibrationError()));
  plot.x_title = "mean confidence";
  plot.y_title = "share of predictions that are right";
  return plot;
}

CurvePlot ReliabilityPlot(const EvaluationCalibration& calibration, int c) {
  CurvePlot plot =
      ReliabilityOf(calibration.Reliability(c),
                    LabelOf(calibration.name(c), "ECE", calibration.ExpectedCalibrationError(c)));
  plot.x_title = "mean probability of the class";
  plot.y_title = "share of examples of the class";
  return plot;
}

}  // namespace tidepool
