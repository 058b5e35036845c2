// Pictures of digits as requests bring them: PNG files or raw grey bytes.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_IMAGE_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_IMAGE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "tidepool/nn/data/png_image.h"

namespace tidepool {

using GreyImage = std::vector<uint8_t>;  // [height, width], 0 is the background

// PNG of any colour type, of exactly that size; colours become grey. Throws as png_image.h.
GreyImage DecodePng(std::string_view png, int64_t height, int64_t width);
// How many raw images these bytes are, one behind the other. Throws kInvalidArgument for no image
// or a part of one.
int64_t CountRawImages(std::string_view bytes, int64_t height, int64_t width);

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_IMAGE_H_
