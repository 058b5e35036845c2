#include "tidepool/nn/data/png_image.h"

#include <png.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
// Of what is ancillary, by a small letter, what pixels depend on. The library would unpack the
// rest: a thousand texts of eight kilobytes are eight gigabytes.
constexpr absl::string_view kNeeded[] = {"tRNS", "gAMA", "cHRM", "sRGB"};

uint32_t BigEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// The chunks that pixels are made of; larger than `most` they are refused.
std::string NeededChunks(std::string_view png, size_t most) {
  static constexpr std::string_view kEnd("\0\0\0\0IEND\xae\x42\x60\x82", 12);  // with its sum
  std::string needed(kSignature);
  for (size_t at = kSignature.size(); at < png.size();) {
    const std::string_view rest = png.substr(at);
    const size_t bytes = rest.size() < 12 ? 12 : size_t{12} + BigEndian(rest);  // length, type, sum
    if (bytes > rest.size()) {
      ThrowInvalidArgument(absl::StrCat("png: a chunk at byte ", at, " needs ", bytes,
                                        " bytes, found ", rest.size()));
    }
    const absl::string_view type(rest.data() + 4, 4);
    if (!absl::ascii_islower(static_cast<unsigned char>(type[0])) ||
        std::find(std::begin(kNeeded), std::end(kNeeded), type) != std::end(kNeeded)) {
      if (bytes > most - needed.size()) {
        ThrowInvalidArgument(absl::StrCat("png: chunk ", absl::CHexEscape(type), " at byte ", at,
                                          ": more than ", most,
                                          " bytes for an image of that size"));
      }
      needed.append(rest.substr(0, bytes));
    }
    if (type == "IEND") {
      if (rest == kEnd) return needed;
      ThrowInvalidArgument(absl::StrCat("png: chunk IEND at byte ", at,
                                        ": found other bytes or more behind it, expected the end"));
    }
    at += bytes;
  }
  ThrowInvalidArgument(absl::StrCat("png: found the end at byte ", png.size(), ", expected IEND"));
}

}  // namespace

bool LooksLikePng(std::string_view bytes) { return bytes.substr(0, 8) == kSignature; }

ImageSize PngSizeOf(std::string_view png) {
  // Signature, length and type of the first chunk, width, height.
  if (!LooksLikePng(png) || png.size() < 24 || png.substr(12, 4) != "IHDR") {
    ThrowInvalidArgument("png: found no header, expected a signature and IHDR");
  }
  return {BigEndian(png.substr(20)), BigEndian(png.substr(16))};
}

void DecodePng(std::string_view png, ImageSize size, int channels, absl::Span<uint8_t> pixels) {
  const auto [height, width] = size;
  if (height < 1 || width < 1 || (channels != 1 && channels != 3) ||
      pixels.size() != static_cast<size_t>(height * width * channels)) {
    ThrowInvalidArgument(absl::StrCat("png: found room for ", pixels.size(), " bytes, expected ",
                                      height, " x ", width, " pixels of ", channels,
                                      " channels, which are 1 or 3"));
  }
  // Four colours of sixteen bits, not compressed at all, and room for a palette.
  const size_t most = (size_t{64} << 10) + 16 * static_cast<size_t>(height * (width + 1));
  const std::string needed = NeededChunks(png, most);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  const absl::Cleanup free_image = [&image] { png_image_free(&image); };
  if (png_image_begin_read_from_memory(&image, needed.data(), needed.size()) == 0) {
    ThrowInvalidArgument(absl::StrCat("png: ", image.message));
  }
  // Before any pixel is read: a header may claim a picture of any size.
  if (image.height != height || image.width != width) {
    ThrowInvalidArgument(absl::StrCat("png: the image is ", image.height, " x ", image.width,
                                      " pixels, expected ", height, " x ", width));
  }
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const png_color black = {0, 0, 0};  // what transparent pixels are put on
  if (png_image_finish_read(&image, &black, pixels.data(), 0, nullptr) == 0) {
    ThrowInvalidArgument(absl::StrCat("png: ", image.message));
  }
}

}  // namespace tidepool
