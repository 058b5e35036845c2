#include "tidepool/nn/data/png_image.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
// Of what is ancillary, by a small letter, the one chunk that pixels depend on. The library would
// unpack the rest: a thousand texts of eight kilobytes are eight gigabytes.
constexpr absl::string_view kTransparency = "tRNS";

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
    if (!absl::ascii_islower(static_cast<unsigned char>(type[0])) || type == kTransparency) {
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

// The library is C and ends a call that fails by a jump: between setjmp and the jump no object with a
// destructor is made, and what is told afterwards lies here, outside of the frame.
struct Decoder {
  std::string_view rest;  // of the file
  char message[256] = {};
  std::jmp_buf jump = {};
};

[[noreturn]] void Refuse(png_structp png, png_const_charp message) {
  Decoder& decoder = *static_cast<Decoder*>(png_get_error_ptr(png));
  std::snprintf(decoder.message, sizeof(decoder.message), "%s", message);
  std::longjmp(decoder.jump, 1);
}

void Ignore(png_structp, png_const_charp) {}

void ReadBytes(png_structp png, png_bytep to, size_t bytes) {
  Decoder& decoder = *static_cast<Decoder*>(png_get_io_ptr(png));
  if (bytes > decoder.rest.size()) png_error(png, "found the end of the file within a chunk");
  std::memcpy(to, decoder.rest.data(), bytes);
  decoder.rest.remove_prefix(bytes);
}

// Four bytes a pixel, or one of them, which is a place of the palette.
struct Rows {
  explicit Rows(ImageSize size) : bytes(static_cast<size_t>(4 * size.height * size.width)) {}

  std::vector<uint8_t> bytes;
  bool are_places = false;
  png_color palette[256] = {};
  uint8_t alpha[256];
  int colours = 0;
};

bool ReadRows(Decoder& decoder, png_structp png, png_infop info, ImageSize size, Rows& rows) {
  if (setjmp(decoder.jump) != 0) return false;
  png_set_read_fn(png, &decoder, &ReadBytes);
  png_read_info(png, info);
  const auto height = static_cast<int64_t>(png_get_image_height(png, info));
  const auto width = static_cast<int64_t>(png_get_image_width(png, info));
  // Before any pixel is read: a header may claim a picture of any size.
  if (height != size.height || width != size.width) {
    char message[160];
    std::snprintf(message, sizeof(message), "the image is %lld x %lld pixels, expected %lld x %lld",
                  static_cast<long long>(height), static_cast<long long>(width),
                  static_cast<long long>(size.height), static_cast<long long>(size.width));
    Refuse(png, message);
  }
  rows.are_places = png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE;
  if (rows.are_places) {
    png_colorp palette = nullptr;
    png_bytep alpha = nullptr;
    int transparent = 0;
    png_get_PLTE(png, info, &palette, &rows.colours);
    png_get_tRNS(png, info, &alpha, &transparent, nullptr);
    std::copy(palette, palette + rows.colours, rows.palette);
    std::fill(std::copy(alpha, alpha + transparent, rows.alpha), rows.alpha + 256, 255);
    png_set_packing(png);
  } else {
    png_set_expand(png);  // fewer bits than eight, and the one transparent colour
    png_set_scale_16(png);
    png_set_gray_to_rgb(png);
    png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
  }
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const size_t row_bytes = png_get_rowbytes(png, info);
  const size_t expected = static_cast<size_t>(width) * (rows.are_places ? 1 : 4);
  if (row_bytes != expected) png_error(png, "the library makes other rows than were asked for");
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t y = 0; y < static_cast<size_t>(height); ++y)
      png_read_row(png, rows.bytes.data() + y * row_bytes, nullptr);
  }
  png_read_end(png, nullptr);
  return true;
}

uint8_t OnBlack(uint8_t value, uint8_t alpha) {
  return static_cast<uint8_t>((value * alpha + 127) / 255);
}

void Put(const uint8_t* colour, uint8_t alpha, int channels, uint8_t* to) {
  const uint8_t red = OnBlack(colour[0], alpha), green = OnBlack(colour[1], alpha),
                blue = OnBlack(colour[2], alpha);
  if (channels == 3) {
    to[0] = red, to[1] = green, to[2] = blue;
  } else {
    to[0] = GreyOf(red, green, blue);
  }
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
  Rows rows(size);
  Decoder decoder;
  decoder.rest = needed;
  png_structp reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, &Refuse, &Ignore);
  png_infop info = reader == nullptr ? nullptr : png_create_info_struct(reader);
  const bool is_read = info != nullptr && ReadRows(decoder, reader, info, size, rows);
  png_destroy_read_struct(&reader, &info, nullptr);
  if (!is_read) ThrowInvalidArgument(absl::StrCat("png: ", decoder.message));
  uint8_t* to = pixels.data();
  for (int64_t i = 0; i < height * width; ++i, to += channels) {
    if (!rows.are_places) {
      const uint8_t* from = rows.bytes.data() + 4 * i;
      Put(from, from[3], channels, to);
      continue;
    }
    const uint8_t place = rows.bytes[static_cast<size_t>(i)];
    if (place >= rows.colours) {
      ThrowInvalidArgument(absl::StrCat("png: pixel [", i / width, ", ", i % width,
                                        "]: found colour ", place,
                                        ", expected one of the palette's ", rows.colours));
    }
    const png_color& colour = rows.palette[place];
    const uint8_t parts[] = {colour.red, colour.green, colour.blue};
    Put(parts, rows.alpha[place], channels, to);
  }
}

}  // namespace tidepool
