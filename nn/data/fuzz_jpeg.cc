// JPEG files.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
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
                            .run = &ReadJpeg,
                            .constant_bytes = size_t{4} << 20,
                            .cases = 10000});

}  // namespace
}  // namespace tidepool
