#include "tidepool/nn/data/png_image.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/data/jpeg_image.h"
#include "tidepool/nn/data/testing/jpeg_writer.h"
#include "tidepool/nn/data/testing/png_files.h"

namespace tidepool::nn {
namespace {

using ::testing::ElementsAre;

// A row of two pixels, twice, without a filter.
std::string PngOfTwo(int depth, int colour, const std::string& row,
                     const std::string& between = "") {
  const std::string filtered = std::string(1, '\0') + row;
  return PngOfRows(2, depth, colour, filtered + filtered, between);
}

std::string Bytes(const std::vector<int>& values) {
  std::string bytes;
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

// Of its first row.
std::vector<int> Decoded(const std::string& png, int channels) {
  std::vector<uint8_t> pixels(static_cast<size_t>(4 * channels));
  DecodePng(png, {2, 2}, channels, absl::MakeSpan(pixels));
  return {pixels.begin(), pixels.begin() + 2 * channels};
}

TEST(PngImage, NumbersAreThoseOfTheFile) {
  const std::string grey = Bytes({128, 200});
  EXPECT_THAT(Decoded(PngOfTwo(8, 0, grey), 1), ElementsAre(128, 200));
  EXPECT_THAT(Decoded(PngOfTwo(8, 0, grey), 3), ElementsAre(128, 128, 128, 200, 200, 200));
  EXPECT_THAT(Decoded(PngOfTwo(16, 0, Bytes({0x80, 0x80, 200, 200})), 1), ElementsAre(128, 200));
  EXPECT_THAT(Decoded(PngOfTwo(16, 0, Bytes({0x80, 0x00, 0x00, 0xff})), 1), ElementsAre(128, 1));
  const std::string colours = Bytes({200, 100, 50, 0, 255, 7});
  EXPECT_THAT(Decoded(PngOfTwo(8, 2, colours), 3), ElementsAre(200, 100, 50, 0, 255, 7));
  EXPECT_THAT(
      Decoded(PngOfTwo(16, 2, Bytes({200, 200, 100, 100, 50, 50, 0, 0, 255, 255, 7, 7})), 3),
      ElementsAre(200, 100, 50, 0, 255, 7));
  EXPECT_THAT(Decoded(PngOfTwo(1, 0, Bytes({0x40})), 1), ElementsAre(0, 255));
  for (const std::string& gamma : {BigEndian(45455), BigEndian(100000)}) {
    EXPECT_THAT(Decoded(PngOfTwo(8, 0, grey, PngChunk("gAMA", gamma)), 1), ElementsAre(128, 200));
    EXPECT_THAT(Decoded(PngOfTwo(16, 0, Bytes({0x80, 0x80, 200, 200}), PngChunk("gAMA", gamma)), 1),
                ElementsAre(128, 200));
  }
}

TEST(PngImage, GreyOfColoursIsThatOfJpeg) {
  for (const std::vector<int>& colour : std::vector<std::vector<int>>{
           {255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {200, 100, 50}, {255, 255, 255}, {1, 2, 3}}) {
    const std::string pixel = Bytes(colour);
    const int found = Decoded(PngOfTwo(8, 2, pixel + pixel), 1)[0];
    std::vector<uint8_t> pixels;
    for (int i = 0; i < 64; ++i) pixels.insert(pixels.end(), colour.begin(), colour.end());
    std::vector<uint8_t> grey(64);
    DecodeJpeg(Jpeg(pixels, 8, 8, 3), {8, 8}, 1, absl::MakeSpan(grey));
    EXPECT_NEAR(found, grey[0], 1) << ::testing::PrintToString(colour);
    EXPECT_NEAR(found, 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2], 0.51);
  }
}

// Of saturated areas with sharp edges a JPEG file's luminance is another grey than that of the colours
// that it shows.
TEST(PngImage, EqualPicturesAreEqualWhateverTheirFiles) {
  constexpr int kSize = 32;
  std::vector<uint8_t> drawn;
  uint32_t random = 1;
  for (int i = 0; i < 3 * kSize * kSize; ++i) {
    random = random * 1664525 + 1013904223;
    drawn.push_back((random >> 24) % 2 == 0 ? 0 : 255);
  }
  const std::string jpeg = Jpeg(drawn, kSize, kSize, 3);
  std::vector<uint8_t> colours(drawn.size()), grey(kSize * kSize), of_png(grey.size());
  DecodeJpeg(jpeg, {kSize, kSize}, 3, absl::MakeSpan(colours));
  DecodeJpeg(jpeg, {kSize, kSize}, 1, absl::MakeSpan(grey));
  std::string rows;
  for (int y = 0; y < kSize; ++y) {
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(colours.data()) + 3 * kSize * y, 3 * kSize);
  }
  DecodePng(PngOfRows(kSize, 8, 2, rows), {kSize, kSize}, 1, absl::MakeSpan(of_png));
  EXPECT_EQ(grey, of_png);
}

TEST(PngImage, TransparentPixelsLieOnBlack) {
  EXPECT_THAT(Decoded(PngOfTwo(8, 4, Bytes({200, 128, 90, 0})), 1), ElementsAre(100, 0));
  EXPECT_THAT(Decoded(PngOfTwo(8, 6, Bytes({200, 100, 50, 128, 9, 9, 9, 255})), 3),
              ElementsAre(100, 50, 25, 9, 9, 9));
  EXPECT_THAT(Decoded(PngOfTwo(8, 0, Bytes({7, 8}), PngChunk("tRNS", Bytes({0, 7}))), 1),
              ElementsAre(0, 8));
}

TEST(PngImage, PlacesOfAPalette) {
  const std::string palette = PngChunk("PLTE", Bytes({255, 0, 0, 200, 100, 50, 10, 20, 30}));
  const std::string alpha = PngChunk("tRNS", Bytes({255, 128}));
  EXPECT_THAT(Decoded(PngOfTwo(2, 3, Bytes({0x80}), palette), 3),  // 2, 0
              ElementsAre(10, 20, 30, 255, 0, 0));
  EXPECT_THAT(Decoded(PngOfTwo(8, 3, Bytes({1, 2}), palette + alpha), 3),
              ElementsAre(100, 50, 25, 10, 20, 30));
  EXPECT_THAT(Decoded(PngOfTwo(8, 3, Bytes({0, 0}), palette), 1), ElementsAre(76, 76));
  EXPECT_THAT(ErrorOf([&] {
                Decoded(PngOfTwo(8, 3, Bytes({0, 3}), palette), 3);
              }),
              IsError(absl::StatusCode::kInvalidArgument,
                      {"pixel [0, 1]: found colour 3, expected one of the palette's 3"}));
  EXPECT_THAT(ErrorOf([&] {
                Decoded(PngOfTwo(8, 3, Bytes({0, 0})), 3);
              }),
              IsError(absl::StatusCode::kInvalidArgument, {"png: ", "PLTE"}));
}

// What lies behind the pixels of a row that is cut, and a picture that is another one's size.
TEST(PngImage, WhatIsDamagedIsRefused) {
  EXPECT_THAT(ErrorOf([&] { Decoded(PngOfTwo(8, 0, Bytes({1})), 1); }),
              IsError(absl::StatusCode::kInvalidArgument, {"png: "}));
  EXPECT_THAT(ErrorOf([&] { Decoded(Png(8, 0, 4), 1); }),
              IsError(absl::StatusCode::kInvalidArgument, {"4 x 4 pixels, expected 2 x 2"}));
}

}  // namespace
}  // namespace tidepool::nn
