// JPEG files.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/nn/data/jpeg_image.h"
#include "tidepool/nn/data/testing/jpeg_writer.h"

namespace tidepool {
namespace {

constexpr int kHeight = 12, kWidth = 17;

std::vector<std::string> JpegFiles() {
  std::vector<uint8_t> pixels(kHeight * kWidth * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37 % 251);
  std::vector<std::string> files;
  for (const bool progressive : {false, true}) {
    files.push_back(Jpeg(pixels, kHeight, kWidth, 3, progressive));
    files.push_back(Jpeg(pixels, kHeight, kWidth, 1, progressive));
  }
  return files;
}

// A segment: a marker, its length and what is in it; the last one has the scan behind it.
void MutateJpeg(ByteMutator& mutator, std::string& bytes) {
  std::vector<size_t> segments;
  for (size_t at = 2; at + 4 <= bytes.size() && bytes[at] == '\xff';) {
    segments.push_back(at);
    at +=
        2 + static_cast<uint8_t>(bytes[at + 2]) * size_t{256} + static_cast<uint8_t>(bytes[at + 3]);
  }
  if (segments.size() < 2) return mutator.Mutate(bytes);
  const size_t n = mutator.Below(segments.size() - 1);
  const size_t begin = segments[n], size = segments[n + 1] - begin;
  switch (mutator.Below(4)) {
    case 0:
      bytes.insert(begin, bytes.substr(begin, size));
      break;
    case 1:
      bytes.erase(begin, size);
      break;
    case 2:
      bytes[begin + 1] = static_cast<char>(0xc0 + mutator.Below(64));
      break;
    default:
      bytes[begin + 2 + mutator.Below(size - 2)] = static_cast<char>(mutator.Number(16));
  }
}

void ReadJpeg(const std::string& bytes) {
  bool accepted = false;
  std::vector<uint8_t> first;
  for (const int channels : {1, 3}) {
    std::vector<uint8_t> pixels(static_cast<size_t>(kHeight * kWidth * channels));
    try {
      DecodeJpeg(bytes, {kHeight, kWidth}, channels, absl::MakeSpan(pixels));
      accepted = true;
      EXPECT_EQ(JpegSizeOf(bytes), (ImageSize{kHeight, kWidth}));
      EXPECT_TRUE(LooksLikeJpeg(bytes));
      std::vector<uint8_t> again(pixels.size());
      DecodeJpeg(bytes, {kHeight, kWidth}, channels, absl::MakeSpan(again));
      EXPECT_EQ(again, pixels);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
      EXPECT_EQ(error.message().find("jpeg: "), 0u) << error.message();
      if (channels == 3 && !accepted) throw;
    }
  }
}

TIDEPOOL_FUZZ_TARGET(Jpeg, {.corpus = &JpegFiles,
                            .mutate = &MutateJpeg,
                            .run = &ReadJpeg,
                            .constant_bytes = size_t{4} << 20,
                            .cases = 10000});

}  // namespace
}  // namespace tidepool
