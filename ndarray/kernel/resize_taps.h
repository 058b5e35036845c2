// Which elements of a line an element of the resized line is made of, and by how much.
#ifndef TIDEPOOL_NDARRAY_KERNEL_RESIZE_TAPS_H_
#define TIDEPOOL_NDARRAY_KERNEL_RESIZE_TAPS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tidepool/ndarray/kernel/attributes_images.h"

namespace tidepool {

struct ResizeTaps {
  static constexpr int kMost = 4;
  int count = 0;
  int64_t places[kMost];  // may be equal at borders
  double weights[kMost];
};

inline ResizeTaps TapsOf(const ResizeAttributes& a, int64_t in, int64_t out, int64_t place) {
  if (a.mode == ResizeMode::kNearest) return {1, {std::min(place * in / out, in - 1)}, {1}};
  double at;
  if (a.align_corners) {
    at = out > 1 ? static_cast<double>(place) * static_cast<double>(in - 1) /
                       static_cast<double>(out - 1)
                 : 0;
  } else {
    at = (static_cast<double>(place) + 0.5) * (static_cast<double>(in) / static_cast<double>(out)) -
         0.5;
  }
  const auto inside = [in](int64_t i) { return std::clamp<int64_t>(i, 0, in - 1); };
  if (a.mode == ResizeMode::kLinear) {
    at = std::max(at, 0.0);
    const auto first = std::min(static_cast<int64_t>(at), in - 1);
    const double rest = at - static_cast<double>(first);
    return {2, {first, inside(first + 1)}, {1 - rest, rest}};
  }
  const double floor = std::floor(at), t = at - floor;
  const auto first = static_cast<int64_t>(floor);
  constexpr double kA = -0.75;
  const auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  return {4,
          {inside(first - 1), inside(first), inside(first + 1), inside(first + 2)},
          {far(t + 1), near(t), near(1 - t), far(2 - t)}};
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_RESIZE_TAPS_H_
