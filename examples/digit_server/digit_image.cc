#include "tidepool/examples/digit_server/digit_image.h"

#include <png.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {

bool LooksLikePng(std::string_view bytes) {
  return bytes.size() >= 8 && bytes.substr(0, 8) == "\x89PNG\r\n\x1a\n";
}

GreyImage DecodePng(std::string_view png, int64_t height, int64_t width) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  const absl::Cleanup free_image = [&image] { png_image_free(&image); };
  if (png_image_begin_read_from_memory(&image, png.data(), png.size()) == 0) {
    ThrowInvalidArgument(absl::StrCat("png: ", image.message));
  }
  // Before any pixel is read: a header may claim a picture of any size.
  if (image.height != height || image.width != width) {
    ThrowInvalidArgument(absl::StrCat("png: the image is ", image.height, " x ", image.width,
                                      " pixels, expected ", height, " x ", width));
  }
  image.format = PNG_FORMAT_GRAY;
  GreyImage pixels(static_cast<size_t>(height * width));
  const png_color black = {0, 0, 0};  // what transparent pixels are put on
  if (png_image_finish_read(&image, &black, pixels.data(), 0, nullptr) == 0) {
    ThrowInvalidArgument(absl::StrCat("png: ", image.message));
  }
  return pixels;
}

std::vector<GreyImage> DecodeRaw(std::string_view bytes, int64_t height, int64_t width) {
  const auto size = static_cast<size_t>(height * width);
  if (bytes.empty() || bytes.size() % size != 0) {
    ThrowInvalidArgument(absl::StrCat("raw image: found ", bytes.size(),
                                      " bytes, expected a multiple of ", size, " (", height, " x ",
                                      width, " grey pixels)"));
  }
  std::vector<GreyImage> images;
  for (size_t begin = 0; begin < bytes.size(); begin += size) {
    const std::string_view image = bytes.substr(begin, size);
    images.emplace_back(image.begin(), image.end());
  }
  return images;
}

}  // namespace tidepool
