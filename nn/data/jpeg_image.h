// The pixels of a JPEG file in memory, straight to where they are wanted.
//
// Baseline and progressive, grey or colours (not those for print, CMYK and YCCK). A file that is damaged
// is refused, not mended, one that lacks scans too, and so is one of more than kMostJpegScans passes
// over the picture: a few bytes each, they would take any amount of time. What cameras put behind the
// picture's end is not looked at. Memory: some times the pixels, whatever the file's size. Errors: kInvalidArgument
// naming found and expected. Threads: pure functions.
#ifndef TIDEPOOL_NN_DATA_JPEG_IMAGE_H_
#define TIDEPOOL_NN_DATA_JPEG_IMAGE_H_

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "tidepool/nn/data/png_image.h"

namespace tidepool {

inline constexpr int kMostJpegScans = 64;

bool LooksLikeJpeg(std::string_view bytes);
// What the header claims.
ImageSize JpegSizeOf(std::string_view jpeg);
// As DecodePng.
void DecodeJpeg(std::string_view jpeg, ImageSize size, int channels, absl::Span<uint8_t> pixels);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_JPEG_IMAGE_H_
