// picture.h by cairo.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "cairo/cairo-svg.h"
#include "cairo/cairo.h"
#include "tidepool/eval/curve_plot.h"
#include "tidepool/eval/picture.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/json_writer.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace tidepool {
namespace {

constexpr double kPngScale = 2;  // pixels of a point
constexpr double kFont = 13, kTitleFont = 16;
constexpr double kRow = 19, kSample = 26, kPad = 8;  // of the legend
constexpr double kTold = 0.25;                       // points: what is nearer is not told apart
constexpr int kTicks = 5;                            // between 0 and 1

struct Colour {
  double red, green, blue;
};
constexpr Colour kInk{0.15, 0.15, 0.15}, kGrid{0.88, 0.88, 0.88}, kReference{0.5, 0.5, 0.5},
    kBar{0.82, 0.87, 0.93};
// Apart in hue and lightness, also for most who see fewer colours.
constexpr Colour kCurves[kMostCurves] = {{0.00, 0.45, 0.70}, {0.90, 0.38, 0.00}, {0.00, 0.55, 0.40},
                                         {0.80, 0.20, 0.45}, {0.45, 0.30, 0.70}, {0.55, 0.35, 0.15},
                                         {0.25, 0.70, 0.90}, {0.75, 0.65, 0.00}, {0.15, 0.22, 0.32},
                                         {0.60, 0.10, 0.10}};

// C calls it: exceptions stay inside.
cairo_status_t AppendBytes(void* to, const unsigned char* bytes, unsigned int count) {
  try {
    static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(bytes), count);
    return CAIRO_STATUS_SUCCESS;
  } catch (const std::exception&) {
    return CAIRO_STATUS_NO_MEMORY;
  }
}

void Check(cairo_status_t status) {
  if (status == CAIRO_STATUS_SUCCESS) return;
  const std::string message = absl::StrCat("picture: cairo: ", cairo_status_to_string(status));
  status == CAIRO_STATUS_NO_MEMORY ? ThrowResourceExhausted(message) : ThrowInternal(message);
}

// What cairo takes for text: UTF-8 without control characters.
std::string Printable(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = CodePointBytes(text);
    const bool is_control =
        bytes == 1 && (static_cast<unsigned char>(text[0]) < 0x20 || text[0] == 0x7f);
    absl::StrAppend(&out, bytes == 0 || is_control ? "\xEF\xBF\xBD" : text.substr(0, bytes));
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

double XOf(double x) { return kPlotLeft + x * kPlotSize; }
double YOf(double y) { return kPlotTop + (1 - y) * kPlotSize; }

class Painter {
 public:
  explicit Painter(cairo_surface_t* surface) : cairo_(cairo_create(surface), &cairo_destroy) {
    // The same letters at the same places in both formats.
    const std::unique_ptr<cairo_font_options_t, void (*)(cairo_font_options_t*)> options(
        cairo_font_options_create(), &cairo_font_options_destroy);
    cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
    cairo_set_font_options(to(), options.get());
    cairo_set_line_join(to(), CAIRO_LINE_JOIN_ROUND);
  }

  void Paint(const CurvePlot& plot) {
    SetColour({1, 1, 1});
    cairo_paint(to());
    PaintBars(plot);
    PaintAxes(plot);
    cairo_save(to());
    // Half a line of what runs along an edge is outside.
    cairo_rectangle(to(), kPlotLeft - 2, kPlotTop - 2, kPlotSize + 4, kPlotSize + 4);
    cairo_clip(to());
    size_t colour = 0;
    for (const PlotCurve& curve : plot.curves) PaintCurve(curve, StyleOf(curve, &colour));
    cairo_restore(to());
    PaintLegend(plot);
    Check(cairo_status(to()));
  }

 private:
  enum class Align { kLeft, kMiddle, kRight };

  cairo_t* to() { return cairo_.get(); }
  void SetColour(const Colour& colour) {
    cairo_set_source_rgb(to(), colour.red, colour.green, colour.blue);
  }
  void SetFont(double size) {
    cairo_select_font_face(to(), "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(to(), size);
  }
  double WidthOf(const std::string& text) {
    cairo_text_extents_t extents;
    cairo_text_extents(to(), text.c_str(), &extents);
    return extents.x_advance;
  }
  // On the baseline y.
  void Write(const std::string& text, double x, double y, Align align) {
    const double width = WidthOf(text);
    cairo_move_to(to(),
                  x - (align == Align::kLeft    ? 0
                       : align == Align::kRight ? width
                                                : width / 2),
                  y);
    cairo_show_text(to(), text.c_str());
  }
  void Line(double x0, double y0, double x1, double y1) {
    cairo_move_to(to(), x0, y0);
    cairo_line_to(to(), x1, y1);
    cairo_stroke(to());
  }

  void PaintBars(const CurvePlot& plot) {
    SetColour(kBar);
    for (const PlotBar& bar : plot.bars) {
      cairo_rectangle(to(), XOf(bar.begin) + 1, YOf(bar.height),
                      std::max(0.5, (bar.end - bar.begin) * kPlotSize - 2), bar.height * kPlotSize);
      cairo_fill(to());
    }
  }

  void PaintAxes(const CurvePlot& plot) {
    SetFont(kFont);
    for (int i = 0; i <= kTicks; ++i) {
      const double value = static_cast<double>(i) / kTicks;
      SetColour(kGrid);
      cairo_set_line_width(to(), 1);
      Line(XOf(value), YOf(0), XOf(value), YOf(1));
      Line(XOf(0), YOf(value), XOf(1), YOf(value));
      SetColour(kInk);
      Line(XOf(value), YOf(0), XOf(value), YOf(0) + 5);
      Line(XOf(0) - 5, YOf(value), XOf(0), YOf(value));
      const std::string number = absl::StrFormat("%.1f", value);
      Write(number, XOf(value), YOf(0) + 20, Align::kMiddle);
      Write(number, XOf(0) - 9, YOf(value) + 4.5, Align::kRight);
    }
    cairo_rectangle(to(), kPlotLeft, kPlotTop, kPlotSize, kPlotSize);
    cairo_stroke(to());
    Write(Printable(plot.x_title), XOf(0.5), kPictureHeight - 18, Align::kMiddle);
    cairo_save(to());
    cairo_translate(to(), 26, YOf(0.5));
    cairo_rotate(to(), -std::acos(0.0));
    Write(Printable(plot.y_title), 0, 0, Align::kMiddle);
    cairo_restore(to());
    SetFont(kTitleFont);
    Write(Printable(plot.title), XOf(0.5), kPlotTop - 18, Align::kMiddle);
  }

  Colour StyleOf(const PlotCurve& curve, size_t* next) {
    if (curve.is_reference) return kReference;
    return kCurves[(*next)++ % std::size(kCurves)];
  }
  void SetPen(const PlotCurve& curve, const Colour& colour) {
    SetColour(colour);
    cairo_set_line_width(to(), curve.is_reference ? 1.2 : 2);
    const double dashes[] = {5, 4};
    cairo_set_dash(to(), dashes, curve.is_reference ? 2 : 0, 0);
  }

  void PaintCurve(const PlotCurve& curve, const Colour& colour) {
    if (curve.points.empty()) return;
    SetPen(curve, colour);
    double last_x = 0, last_y = 0;
    for (size_t i = 0; i < curve.points.size(); ++i) {
      const double x = XOf(curve.points[i].x), y = YOf(curve.points[i].y);
      const bool is_end = i == 0 || i + 1 == curve.points.size();
      if (!is_end && std::abs(x - last_x) < kTold && std::abs(y - last_y) < kTold) continue;
      i == 0 ? cairo_move_to(to(), x, y) : cairo_line_to(to(), x, y);
      last_x = x;
      last_y = y;
    }
    cairo_stroke(to());
    cairo_set_dash(to(), nullptr, 0, 0);
    if (!curve.has_dots) return;
    for (const PlotPoint& point : curve.points) Dot(XOf(point.x), YOf(point.y));
  }
  void Dot(double x, double y) {
    cairo_new_sub_path(to());
    cairo_arc(to(), x, y, 3.5, 0, 4 * std::acos(0.0));
    cairo_fill(to());
  }

  void PaintLegend(const CurvePlot& plot) {
    SetFont(kFont);
    const std::string bars = plot.bars.empty() ? "" : Printable(plot.bars_label),
                      note = Printable(plot.note);
    double widest = WidthOf(note) - kSample, rows = note.empty() ? 0 : 1;
    const auto measure = [&](const std::string& label) {
      if (label.empty()) return;
      widest = std::max(widest, WidthOf(label));
      ++rows;
    };
    measure(bars);
    for (const PlotCurve& curve : plot.curves) measure(Printable(curve.label));
    if (rows == 0) return;
    const double width = kSample + widest + 2 * kPad, height = rows * kRow + kPad, edge = 10;
    const double left =
        plot.legend == CurvePlot::Corner::kBottomRight ? XOf(1) - edge - width : XOf(0) + edge;
    double y = plot.legend == CurvePlot::Corner::kTopLeft ? YOf(1) + edge : YOf(0) - edge - height;
    cairo_set_source_rgba(to(), 1, 1, 1, 0.85);
    cairo_rectangle(to(), left, y, width, height);
    cairo_fill_preserve(to());
    SetColour(kGrid);
    cairo_set_line_width(to(), 1);
    cairo_stroke(to());
    y += kPad / 2;
    const auto write = [&](const std::string& text, double x) {
      SetColour(kInk);
      Write(text, x, y + kRow - 5, Align::kLeft);
      y += kRow;
    };
    size_t next = 0;
    for (const PlotCurve& curve : plot.curves) {
      const Colour colour = StyleOf(curve, &next);
      if (curve.label.empty()) continue;
      if (!curve.points.empty()) {
        SetPen(curve, colour);
        Line(left + kPad, y + kRow / 2, left + kPad + kSample - 6, y + kRow / 2);
        cairo_set_dash(to(), nullptr, 0, 0);
        if (curve.has_dots) Dot(left + kPad + (kSample - 6) / 2, y + kRow / 2);
      }
      write(Printable(curve.label), left + kPad + kSample);
    }
    if (!bars.empty()) {
      SetColour(kBar);
      cairo_rectangle(to(), left + kPad, y + 4, kSample - 6, kRow - 8);
      cairo_fill(to());
      write(bars, left + kPad + kSample);
    }
    if (!note.empty()) write(note, left + kPad);
  }

  const std::unique_ptr<cairo_t, void (*)(cairo_t*)> cairo_;
};

}  // namespace

void CheckPicturesAreBuilt() {}

std::string DrawPicture(const CurvePlot& plot, PictureFormat format) {
#ifdef __SANITIZE_ADDRESS__
  // Fontconfig keeps what it has read behind pointers that are offsets, which look like leaks.
  const __lsan::ScopedDisabler keeps_fonts;
#endif
  std::string bytes;
  const bool is_png = format == PictureFormat::kPng;
  const std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> surface(
      is_png ? cairo_image_surface_create(CAIRO_FORMAT_RGB24,
                                          static_cast<int>(kPngScale * kPictureWidth),
                                          static_cast<int>(kPngScale * kPictureHeight))
             : cairo_svg_surface_create_for_stream(&AppendBytes, &bytes, kPictureWidth,
                                                   kPictureHeight),
      &cairo_surface_destroy);
  Check(cairo_surface_status(surface.get()));
  if (is_png) cairo_surface_set_device_scale(surface.get(), kPngScale, kPngScale);
  Painter(surface.get()).Paint(plot);
  if (is_png) {
    Check(cairo_surface_write_to_png_stream(surface.get(), &AppendBytes, &bytes));
  } else {
    cairo_surface_finish(surface.get());
    Check(cairo_surface_status(surface.get()));
  }
  return bytes;
}

}  // namespace tidepool
