// The pixels of a PNG file in memory, straight to where they are wanted.
//
// Of any colour type: numbers as they stand in the file, of 8 bits (16 are rounded). Grey of colours is
// 0.299 red + 0.587 green + 0.114 blue, of a JPEG file's colours too; a transparent pixel lies on black,
// its value times its opacity. So equal pictures are equal whatever their files; gamma is not applied.
// What pixels do not need, such as texts and profiles, is not looked at: a few bytes can stand for any
// number of them. Memory: some times the pixels, whatever the file's size. Errors: kInvalidArgument
// naming byte or pixel, found and expected. Threads: pure functions.
#ifndef TIDEPOOL_NN_DATA_PNG_IMAGE_H_
#define TIDEPOOL_NN_DATA_PNG_IMAGE_H_

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"

namespace tidepool {

struct ImageSize {
  int64_t height = 0, width = 0;  // pixels

  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

// Grey of a colour, by the weights of ITU-R BT.601 over 2^16; of grey that itself. For every kind of file.
inline uint8_t GreyOf(uint8_t red, uint8_t green, uint8_t blue) {
  return static_cast<uint8_t>((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16);
}

// Whether it begins as a PNG file does.
bool LooksLikePng(std::string_view bytes);
// What the header claims; nothing else is looked at.
ImageSize PngSizeOf(std::string_view png);
// [height, width, channels] of exactly that size, of 1 (grey) or 3 channels (red, green, blue).
void DecodePng(std::string_view png, ImageSize size, int channels, absl::Span<uint8_t> pixels);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_PNG_IMAGE_H_
