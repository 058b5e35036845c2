// Grey pictures as PNG files.
#ifndef TIDEPOOL_EXAMPLES_AUTOENCODER_PICTURE_H_
#define TIDEPOOL_EXAMPLES_AUTOENCODER_PICTURE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool::examples {

class Picture {
 public:
  // Black.
  Picture(int64_t height, int64_t width)
      : height_(height), width_(width), pixels_(static_cast<size_t>(height * width)) {}

  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  const std::vector<uint8_t>& pixels() const { return pixels_; }
  // `values` [height, width], 0 black and 1 white, each a square of `scale` pixels; the upper left
  // corner at (y, x). Throws kInvalidArgument where it does not fit in.
  void Draw(int64_t y, int64_t x, const float* values, int64_t height, int64_t width,
            int64_t scale);

 private:
  int64_t height_, width_;
  std::vector<uint8_t> pixels_;
};

// The bytes of a PNG file. Throws kInternal with what libpng says.
std::string EncodePng(const Picture& picture);
// Whole or not at all (AtomicFile).
void WritePng(const Picture& picture, const std::string& path);

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_AUTOENCODER_PICTURE_H_
