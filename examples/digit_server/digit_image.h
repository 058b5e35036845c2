// Pictures of digits as requests bring them: PNG files or raw grey bytes.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_IMAGE_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_IMAGE_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace tidepool {

using GreyImage = std::vector<uint8_t>;  // [height, width], 0 is the background

// PNG of any colour type, of exactly that size; colours become grey. What is not needed for that,
// such as texts and profiles, is not looked at: a few bytes can stand for any number of them.
// Throws kInvalidArgument naming what was found. Memory: some times height * width, whatever the
// file's size.
GreyImage DecodePng(std::string_view png, int64_t height, int64_t width);
// How many raw images these bytes are, one behind the other. Throws kInvalidArgument for no image
// or a part of one.
int64_t CountRawImages(std::string_view bytes, int64_t height, int64_t width);
bool LooksLikePng(std::string_view bytes);

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_IMAGE_H_
