// Pictures of digits as requests bring them: PNG files or raw grey bytes.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_IMAGE_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_IMAGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tidepool {

using GreyImage = std::vector<uint8_t>;  // [height, width], 0 is the background

// PNG of any colour type, of exactly that size; colours become grey. Throws kInvalidArgument naming
// what was found.
GreyImage DecodePng(std::string_view png, int64_t height, int64_t width);
// One or more images one behind the other.
std::vector<GreyImage> DecodeRaw(std::string_view bytes, int64_t height, int64_t width);
bool LooksLikePng(std::string_view bytes);

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_IMAGE_H_
