#include "tidepool/examples/autoencoder/picture.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"

namespace tidepool::examples {
namespace {

TEST(PictureTest, ItsPngHoldsItsPixels) {
  Picture picture(6, 9);
  const float values[] = {0, 1, 0.5f, -3, 7, 0.2f};
  picture.Draw(1, 2, values, 2, 3, 2);
  const std::string png = EncodePng(picture);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_memory(&image, png.data(), png.size()), 0);
  EXPECT_EQ(image.height, 6u);
  EXPECT_EQ(image.width, 9u);
  EXPECT_EQ(image.format, static_cast<png_uint_32>(PNG_FORMAT_GRAY));
  std::vector<uint8_t> pixels(6 * 9);
  ASSERT_NE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 0);
  const std::vector<uint8_t> expected = {0, 0, 0, 0, 0,   0,   0,   0,   0,  //
                                         0, 0, 0, 0, 255, 255, 128, 128, 0,  //
                                         0, 0, 0, 0, 255, 255, 128, 128, 0,  //
                                         0, 0, 0, 0, 255, 255, 51,  51,  0,  //
                                         0, 0, 0, 0, 255, 255, 51,  51,  0,  //
                                         0, 0, 0, 0, 0,   0,   0,   0,   0};
  EXPECT_EQ(pixels, expected);
}

TEST(PictureTest, WhatDoesNotFitInIsRefused) {
  Picture picture(6, 9);
  const float values[12] = {};
  for (const auto& [y, x, scale] : {std::tuple{-1, 0, 1}, {0, 7, 1}, {1, 0, 3}, {0, 0, 0}}) {
    EXPECT_THROW(picture.Draw(y, x, values, 2, 3, scale), Error);
  }
}

}  // namespace
}  // namespace tidepool::examples
