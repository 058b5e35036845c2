#include "tidepool/examples/digit_server/digit_image.h"

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"

namespace tidepool {

GreyImage DecodePng(std::string_view png, int64_t height, int64_t width) {
  GreyImage pixels(static_cast<size_t>(height * width));
  DecodePng(png, {height, width}, 1, absl::MakeSpan(pixels));
  return pixels;
}

int64_t CountRawImages(std::string_view bytes, int64_t height, int64_t width) {
  const auto size = static_cast<size_t>(height * width);
  if (bytes.empty() || bytes.size() % size != 0) {
    ThrowInvalidArgument(absl::StrCat("raw image: found ", bytes.size(),
                                      " bytes, expected a multiple of ", size, " (", height, " x ",
                                      width, " grey pixels)"));
  }
  return static_cast<int64_t>(bytes.size() / size);
}

}  // namespace tidepool
