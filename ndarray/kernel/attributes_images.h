// Attributes of resizing and of convolutions of three dimensions. See attributes.h.
#ifndef TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_IMAGES_H_
#define TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_IMAGES_H_

#include <cstdint>

namespace tidepool {

enum class ResizeMode : uint8_t {
  kNearest,  // the element at floor(place * in / out)
  kLinear,
  kCubic,  // Keys 1981 with a = -0.75
};

// Where the element at place o of the output lies in the input: at (o + 1/2) * in / out - 1/2; with align_corners at
// o * (in - 1) / (out - 1), so that corners stay corners. What lies beyond the border is the border's element.
struct ResizeAttributes {
  ResizeMode mode = ResizeMode::kLinear;
  bool align_corners = false;  // not of kNearest
};

// Input [batch, depth, height, width, channels], filter [filters, kernel depth, height, width, channels / groups],
// output [batch, out depth, out height, out width, filters]. By axis: depth, height, width. Otherwise as
// Conv2dAttributes.
struct Conv3dAttributes {
  int64_t stride[3] = {1, 1, 1};
  int64_t pad_before[3] = {0, 0, 0}, pad_behind[3] = {0, 0, 0};
  int64_t dilation[3] = {1, 1, 1};
  bool relu = false;        // of the output, forward only
  bool accumulate = false;  // gradient of the filter only
  int64_t groups = 1;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_IMAGES_H_
