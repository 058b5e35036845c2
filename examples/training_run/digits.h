// Batches of digits for programs that train on them.
#ifndef TIDEPOOL_EXAMPLES_TRAINING_RUN_DIGITS_H_
#define TIDEPOOL_EXAMPLES_TRAINING_RUN_DIGITS_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/data/digits.h"

namespace tidepool::examples {

// Those images in 0 to 1, [count, height, width, 1], in the current place. `shift(i)`: by how many
// pixels the i-th of them goes down and to the right; what comes in is black.
template <typename Shift>
NDArray PixelsOf(const LabelledImages& images, absl::Span<const int64_t> which, Shift shift) {
  const int64_t height = images.height, width = images.width;
  NDArray pixels = Zeros({static_cast<int64_t>(which.size()), height, width, 1});
  float* to = pixels.mutable_data<float>();
  for (size_t i = 0; i < which.size(); ++i, to += height * width) {
    const auto [down, right] = shift(i);
    const uint8_t* const from = images.pixels.data() + which[i] * height * width;
    for (int64_t y = std::max<int64_t>(0, down); y < std::min(height, height + down); ++y) {
      for (int64_t x = std::max<int64_t>(0, right); x < std::min(width, width + right); ++x) {
        to[y * width + x] = static_cast<float>(from[(y - down) * width + x - right]) / 255;
      }
    }
  }
  return pixels;
}

inline NDArray PixelsOf(const LabelledImages& images, absl::Span<const int64_t> which) {
  return PixelsOf(images, which, [](size_t) { return std::pair<int64_t, int64_t>(); });
}

// --examples: the first so many images, or all of them where there are fewer or it is 0. Throws
// kInvalidArgument below 0.
inline int64_t CountOf(const LabelledImages& images, int64_t count) {
  if (count < 0) {
    ThrowInvalidArgument(absl::StrCat("flag --examples is ", count, ", expected 0 (all) or more"));
  }
  return count == 0 ? images.count : std::min(count, images.count);
}

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_TRAINING_RUN_DIGITS_H_
