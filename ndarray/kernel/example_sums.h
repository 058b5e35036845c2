// In which order sums over the examples of a batch are added, where it is promised: so that a batch which is gone through in slices has
// the bits of the whole.
//
// The filter gradient of a 2-D convolution of f32 by the kernels of backends/cpu, one group: the images are summed up in their order,
// PlanesSummedAtOnce() of them at a time, and with `accumulate` to what is there; how those are summed hangs on the shape of an image and
// of the filter alone. So slices of multiples of PlanesSummedAtOnce() images, one behind the other with `accumulate`, give what the
// whole batch gives.
//
// The gradient of its bias, by tapes: the sums of each example [batch, filters], and the sum of these.
#ifndef TIDEPOOL_NDARRAY_KERNEL_EXAMPLE_SUMS_H_
#define TIDEPOOL_NDARRAY_KERNEL_EXAMPLE_SUMS_H_

#include <algorithm>
#include <cstdint>

namespace tidepool {

// Most of a chunk, of one image and of several: these would make slices larger.
inline constexpr int64_t kPixelsSummedAtOnce = 256;
inline constexpr int64_t kPixelsOfSeveralImages = 128;
inline constexpr int64_t kRowsSummedAtOnce = 64;

// Output images of a chunk, at least 1.
constexpr int64_t PlanesSummedAtOnce(int64_t out_height, int64_t out_width) {
  return std::max<int64_t>(1, std::min(kPixelsOfSeveralImages / (out_height * out_width),
                                       kRowsSummedAtOnce / out_height));
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_EXAMPLE_SUMS_H_
