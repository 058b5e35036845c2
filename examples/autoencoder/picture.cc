#include "tidepool/examples/autoencoder/picture.h"

#include <png.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"

namespace tidepool::examples {

void Picture::Draw(int64_t y, int64_t x, const float* values, int64_t height, int64_t width,
                   int64_t scale) {
  if (y < 0 || x < 0 || scale < 1 || y + height * scale > height_ || x + width * scale > width_) {
    ThrowInvalidArgument(absl::StrCat("picture: ", height, " x ", width, " squares of ", scale,
                                      " pixels at (", y, ", ", x, "), expected them within ",
                                      height_, " x ", width_));
  }
  for (int64_t row = 0; row < height * scale; ++row) {
    for (int64_t column = 0; column < width * scale; ++column) {
      const float value = values[row / scale * width + column / scale];
      pixels_[static_cast<size_t>((y + row) * width_ + x + column)] =
          static_cast<uint8_t>(std::lround(255 * std::clamp(value, 0.0f, 1.0f)));
    }
  }
}

std::string EncodePng(const Picture& picture) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(picture.height());
  image.width = static_cast<png_uint_32>(picture.width());
  image.format = PNG_FORMAT_GRAY;
  png_alloc_size_t size = 0;
  const uint8_t* const pixels = picture.pixels().data();
  std::string bytes;
  bool is_done = png_image_write_to_memory(&image, nullptr, &size, 0, pixels, 0, nullptr) != 0;
  if (is_done) {
    bytes.resize(size);
    is_done = png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels, 0, nullptr) != 0;
  }
  if (!is_done) ThrowInternal(absl::StrCat("png: ", image.message));
  return bytes;
}

void WritePng(const Picture& picture, const std::string& path) {
  AtomicFile file(path);
  file.Append(EncodePng(picture));
  file.Commit();
}

}  // namespace tidepool::examples
