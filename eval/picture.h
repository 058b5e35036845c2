// Pictures of curves: PNG and SVG.
//
//   SavePicture(RocPlot(roc), "roc.svg");            // or "roc.png"
//
// Axes from 0 to 1 with ticks, names and a grid; a legend. Cairo draws; built where libcairo2-dev is
// not installed all of this throws kUnimplemented, which says so. Curves of millions of points take
// as many as can be told apart. The same plot gives the same pixels on a machine; letters are of its
// fonts (fontconfig), in SVG as outlines.
//
// Cost: tens of milliseconds, 3 MiB for PNG. Threads: pure functions.
#ifndef TIDEPOOL_EVAL_PICTURE_H_
#define TIDEPOOL_EVAL_PICTURE_H_

#include <string>

#include "tidepool/eval/curve_plot.h"

namespace tidepool {

enum class PictureFormat { kPng, kSvg };

// Where a picture has what, in points of 1/72 inch from its upper left corner; a PNG has two pixels
// for each.
inline constexpr double kPictureWidth = 640, kPictureHeight = 640;
inline constexpr double kPlotLeft = 76, kPlotTop = 48, kPlotSize = 528;

// The bytes of a file. Text that is no UTF-8 is shown with U+FFFD.
std::string DrawPicture(const CurvePlot& plot, PictureFormat format);
// By the name's end: ".png" or ".svg", in any case. The file appears whole or not at all. Throws
// kInvalidArgument for another end, as AtomicFile.
void SavePicture(const CurvePlot& plot, const std::string& path);
// Throws kUnimplemented where this is built without cairo.
void CheckPicturesAreBuilt();

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_PICTURE_H_
