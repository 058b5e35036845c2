// Small PNG files of any kind, for tests.
#ifndef TIDEPOOL_NN_DATA_TESTING_PNG_FILES_H_
#define TIDEPOOL_NN_DATA_TESTING_PNG_FILES_H_

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool {

inline constexpr int64_t kPngSide = 4;  // pixels, both ways

inline std::string BigEndian(uint32_t value) {
  std::string bytes(4, '\0');
  for (int i = 3; i >= 0; --i, value >>= 8)
    bytes[static_cast<size_t>(i)] = static_cast<char>(value);
  return bytes;
}

inline uint32_t SumOf(absl::string_view bytes) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

inline std::string PngChunk(const std::string& type, const std::string& data) {
  return BigEndian(static_cast<uint32_t>(data.size())) + type + data +
         BigEndian(SumOf(type + data));
}

inline std::string Deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  compress2(reinterpret_cast<Bytef*>(out.data()), &size,
            reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 9);
  out.resize(size);
  return out;
}

inline std::string Header(uint32_t side, int depth, int colour, int interlaced) {
  std::string data = BigEndian(side) + BigEndian(side);
  for (const int byte : {depth, colour, 0, 0, interlaced}) data += static_cast<char>(byte);
  return PngChunk("IHDR", data);
}

// `rows`: each with its filter's byte in front. `between` are chunks in front of the pixels.
inline std::string PngOfRows(uint32_t side, int depth, int colour, const std::string& rows,
                             const std::string& between = "", int interlaced = 0) {
  return "\x89PNG\r\n\x1a\n" + Header(side, depth, colour, interlaced) + between +
         PngChunk("IDAT", Deflated(rows)) + PngChunk("IEND", "");
}

inline std::string Png(int depth, int colour, size_t row_bytes, const std::string& between = "",
                       int interlaced = 0) {
  std::string rows;
  for (int64_t y = 0; y < kPngSide; ++y) {
    rows += static_cast<char>(interlaced != 0 ? 0 : y % 5);  // each filter
    for (size_t x = 0; x < row_bytes; ++x) rows += static_cast<char>(37 * x + 11 * y);
  }
  if (interlaced != 0) rows = std::string(64, '\0');
  return PngOfRows(kPngSide, depth, colour, rows, between, interlaced);
}

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_TESTING_PNG_FILES_H_
