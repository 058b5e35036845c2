#include "tidepool/nn/data/jpeg_image.h"

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>

// After <cstdio>, which it needs.
#include <jpeglib.h>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

// The library is C and ends a call that fails by a jump: between setjmp and the jump there are no
// objects with destructors, and what is told afterwards lies here, outside of the frame.
struct Decoder {
  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = {};
};

Decoder& Of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

[[noreturn]] void Refuse(j_common_ptr info) {
  info->err->format_message(info, Of(info).message);
  std::longjmp(Of(info).jump, 1);
}

// Warnings, below 0, are of damage that the library would paint over.
void OnMessage(j_common_ptr info, int level) {
  if (level < 0) Refuse(info);
}

void OnProgress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostJpegScans) return;
  std::snprintf(Of(info).message, sizeof(Of(info).message),
                "found more than %d scans, expected at most as many", kMostJpegScans);
  std::longjmp(Of(info).jump, 1);
}

// Of a progressive file that was read: none of its scans is missing.
bool IsWhole(const jpeg_decompress_struct& info) {
  if (!info.progressive_mode || info.coef_bits == nullptr) return true;
  for (int component = 0; component < info.num_components; ++component) {
    for (int i = 0; i < DCTSIZE2; ++i) {
      if (info.coef_bits[component][i] != 0) return false;
    }
  }
  return true;
}

enum class Outcome { kDone, kOtherSize, kFailed };

// Without pixels the size is all that is asked for.
Outcome Decode(Decoder& decoder, std::string_view jpeg, ImageSize* size, int channels,
               uint8_t* pixels) {
  jpeg_decompress_struct& info = decoder.info;
  info.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = &Refuse;
  decoder.errors.emit_message = &OnMessage;
  decoder.progress.progress_monitor = &OnProgress;
  info.client_data = &decoder;
  if (setjmp(decoder.jump) != 0) return Outcome::kFailed;
  jpeg_create_decompress(&info);
  info.client_data = &decoder;
  info.progress = &decoder.progress;
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
  jpeg_read_header(&info, TRUE);
  if (pixels == nullptr) {
    *size = {static_cast<int64_t>(info.image_height), static_cast<int64_t>(info.image_width)};
    return Outcome::kDone;
  }
  if (info.image_height != size->height || info.image_width != size->width) {
    *size = {static_cast<int64_t>(info.image_height), static_cast<int64_t>(info.image_width)};
    return Outcome::kOtherSize;
  }
  if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK) {
    std::snprintf(decoder.message, sizeof(decoder.message),
                  "found colours for print (%s), expected grey, YCbCr or RGB",
                  info.jpeg_color_space == JCS_CMYK ? "CMYK" : "YCCK");
    return Outcome::kFailed;
  }
  // Grey of colours is that of the colours that the file shows. Its luminance is another one where a
  // colour lies outside of the range, as behind the edges of saturated areas.
  const bool mixes = channels == 1 && info.jpeg_color_space != JCS_GRAYSCALE;
  info.out_color_space = channels == 1 && !mixes ? JCS_GRAYSCALE : JCS_RGB;
  info.dct_method = JDCT_ISLOW;
  jpeg_start_decompress(&info);
  const size_t row = static_cast<size_t>(size->width) * static_cast<size_t>(channels);
  const JSAMPARRAY colours = mixes ? info.mem->alloc_sarray(reinterpret_cast<j_common_ptr>(&info),
                                                            JPOOL_IMAGE, 3 * info.output_width, 1)
                                   : nullptr;
  while (info.output_scanline < info.output_height) {
    JSAMPROW to = pixels + row * info.output_scanline;
    jpeg_read_scanlines(&info, mixes ? colours : &to, 1);
    for (size_t x = 0; mixes && x < row; ++x) {
      const JSAMPLE* colour = colours[0] + 3 * x;
      to[x] = GreyOf(colour[0], colour[1], colour[2]);
    }
  }
  if (!IsWhole(info)) {
    std::snprintf(decoder.message, sizeof(decoder.message),
                  "found the end of the file before its last scan, expected all bits of all "
                  "coefficients");
    return Outcome::kFailed;
  }
  jpeg_finish_decompress(&info);
  return Outcome::kDone;
}

// A frame of its own for setjmp: nothing of the caller's is held in registers across it.
Outcome DecodeAndDestroy(Decoder& decoder, std::string_view jpeg, ImageSize* size, int channels,
                         uint8_t* pixels) {
  const Outcome outcome = Decode(decoder, jpeg, size, channels, pixels);
  jpeg_destroy_decompress(&decoder.info);
  return outcome;
}

}  // namespace

bool LooksLikeJpeg(std::string_view bytes) { return bytes.substr(0, 3) == "\xff\xd8\xff"; }

ImageSize JpegSizeOf(std::string_view jpeg) {
  Decoder decoder;
  ImageSize size;
  if (DecodeAndDestroy(decoder, jpeg, &size, 0, nullptr) != Outcome::kDone) {
    ThrowInvalidArgument(absl::StrCat("jpeg: ", decoder.message));
  }
  return size;
}

void DecodeJpeg(std::string_view jpeg, ImageSize size, int channels, absl::Span<uint8_t> pixels) {
  if (size.height < 1 || size.width < 1 || (channels != 1 && channels != 3) ||
      pixels.size() != static_cast<size_t>(size.height * size.width * channels)) {
    ThrowInvalidArgument(absl::StrCat("jpeg: found room for ", pixels.size(), " bytes, expected ",
                                      size.height, " x ", size.width, " pixels of ", channels,
                                      " channels, which are 1 or 3"));
  }
  Decoder decoder;
  ImageSize found = size;
  switch (DecodeAndDestroy(decoder, jpeg, &found, channels, pixels.data())) {
    case Outcome::kDone:
      return;
    case Outcome::kOtherSize:
      ThrowInvalidArgument(absl::StrCat("jpeg: the image is ", found.height, " x ", found.width,
                                        " pixels, expected ", size.height, " x ", size.width));
    case Outcome::kFailed:
      ThrowInvalidArgument(absl::StrCat("jpeg: ", decoder.message));
  }
}

}  // namespace tidepool
