#include "tidepool/nn/data/image_folder.h"

#include <png.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/jpeg_image.h"
#include "tidepool/nn/data/normalizer.h"
#include "tidepool/nn/data/testing/jpeg_writer.h"

namespace tidepool::nn {
namespace {

using ::absl::StatusCode;
namespace fs = std::filesystem;

std::string Png(const std::vector<uint8_t>& pixels, int height, int width, int channels) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(height);
  image.width = static_cast<png_uint_32>(width);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = 0;
  EXPECT_NE(png_image_write_to_memory(&image, nullptr, &bytes, 0, pixels.data(), 0, nullptr), 0);
  std::string file(bytes, '\0');
  EXPECT_NE(png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels.data(), 0, nullptr),
            0);
  return file;
}

// A smooth picture, which JPEG at its best quality keeps to a few steps: [6, 8, channels].
std::vector<uint8_t> Picture(int number, int channels) {
  std::vector<uint8_t> pixels;
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 8; ++x) {
      for (int c = 0; c < channels; ++c)
        pixels.push_back(static_cast<uint8_t>(20 * number + 6 * y + 4 * x + 10 * c));
    }
  }
  return pixels;
}

class ImageFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / "images";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void Write(const std::string& name, const std::string& bytes) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  fs::path folder_;
};

TEST_F(ImageFolder, ClassesAndFilesByNameWhateverTheirKind) {
  for (const int channels : {1, 3}) {
    SetUp();
    Write("rose/b.PNG", Png(Picture(3, channels), 6, 8, channels));
    Write("rose/a.jpg", Jpeg(Picture(2, channels), 6, 8, channels));
    Write("ash/z.jpeg", Png(Picture(1, channels), 6, 8, channels));  // its bytes say what it is
    Write("ash/10.png", Jpeg(Picture(0, channels), 6, 8, channels, /*progressive=*/true));
    Write("ash/deeper/1.png", "not looked at");
    Write("ash/folder.png/1.png", "not looked at");
    Write("ash/.hidden.png", "not looked at");
    Write("ash/notes.txt", "not looked at");
    Write("beside.png", "not looked at");
    Write("empty/x.txt", "not looked at");
    const auto images = std::make_shared<ImageFolderExamples>(
        folder_.string(), ImageFolderOptions{.channels = channels});
    EXPECT_THAT(images->classes(), ::testing::ElementsAre("ash", "empty", "rose"));
    EXPECT_EQ(images->size(), (ImageSize{6, 8}));
    ExampleIterator<DataSet> batches(images, {.batch_size = 3});
    AsyncDataSetIterator ahead(batches, {.prefetch = 2, .producers = 2});
    EXPECT_EQ(images->PathOf(3), (folder_ / "rose/b.PNG").string());
    for (const int64_t other : {int64_t{-1}, int64_t{4}, INT64_MAX}) {
      EXPECT_THAT(ErrorOf([&] { images->PathOf(other); }),
                  IsError(StatusCode::kInvalidArgument, {"found example", "expected one of 4"}));
    }
    int number = 0;
    std::vector<int64_t> labels;
    while (std::optional<DataSet> batch = ahead.Next()) {
      ASSERT_EQ(batch->features.dtype(), DType::kUInt8);
      for (int64_t i = 0; i < batch->size(); ++i, ++number) {
        const std::vector<uint8_t> expected = Picture(number, channels);
        const uint8_t* found = batch->features.data<uint8_t>() + i * 48 * channels;
        const int most = number == 0 || number == 2 ? 4 : 0;  // JPEG loses a little
        for (size_t p = 0; p < expected.size(); ++p)
          ASSERT_LE(std::abs(found[p] - expected[p]), most) << number << " " << p;
        labels.push_back(batch->labels.At<int64_t>({i}));
      }
    }
    EXPECT_THAT(labels, ::testing::ElementsAre(0, 0, 2, 2));
    const Normalizer scale = Normalizer::ImageScale();
    NormalizedIterator floats(batches, scale);
    batches.Reset();
    EXPECT_EQ(floats.Next()->features.dtype(), DType::kFloat32);
  }
}

TEST_F(ImageFolder, WhatIsWrongIsToldWithItsFile) {
  Write("a/1.png", Png(Picture(0, 1), 6, 8, 1));
  Write("a/2.jpg", Jpeg(Picture(1, 1), 6, 8, 1));
  const auto error_of = [&](const std::string& bytes) {
    Write("a/2.jpg", bytes);
    return ErrorOf([&] {
      ImageFolderExamples images(folder_.string());
      ExampleIterator<DataSet>(std::make_shared<ImageFolderExamples>(images), {.batch_size = 2})
          .Next();
    });
  };
  const std::string good = Jpeg(Picture(1, 1), 6, 8, 1);
  EXPECT_THAT(error_of(good.substr(0, good.size() / 2)),
              IsError(StatusCode::kDataLoss, {"a/2.jpg", "jpeg: "}));
  // Of these the library would make a picture, as far as it goes.
  EXPECT_THAT(error_of(good.substr(0, good.size() - 6)),
              IsError(StatusCode::kDataLoss, {"a/2.jpg", "jpeg: "}));
  EXPECT_THAT(error_of(good.substr(0, 5)), IsError(StatusCode::kDataLoss, {"a/2.jpg", "jpeg: "}));
  EXPECT_THAT(error_of(Jpeg(Picture(1, 4), 6, 8, 4)),
              IsError(StatusCode::kDataLoss, {"a/2.jpg", "found colours for print (CMYK)"}));
  EXPECT_THAT(error_of(Jpeg(Picture(1, 1), 8, 6, 1)),
              IsError(StatusCode::kDataLoss, {"a/2.jpg", "8 x 6 pixels, expected 6 x 8"}));
  EXPECT_THAT(error_of(Png(Picture(1, 1), 8, 6, 1)),
              IsError(StatusCode::kDataLoss, {"a/2.jpg", "8 x 6 pixels, expected 6 x 8"}));
  EXPECT_THAT(error_of("GIF89a"),
              IsError(StatusCode::kDataLoss, {"a/2.jpg", "neither a PNG nor a JPEG"}));
  EXPECT_THAT(error_of(""), IsError(StatusCode::kDataLoss, {"a/2.jpg", "neither"}));
  Write("a/2.jpg", good);
  const auto refuses = [&](const ImageFolderOptions& options) {
    return ErrorOf([&] { ImageFolderExamples(folder_.string(), options); });
  };
  EXPECT_THAT(refuses({.size = {-1, 16}}),
              IsError(StatusCode::kInvalidArgument, {"image folder: found a size of -1 x 16"}));
  EXPECT_THAT(refuses({.max_pixels = 47}),
              IsError(StatusCode::kResourceExhausted, {"a/1.png", "6 x 8", "47"}));
  EXPECT_THAT(refuses({.max_file_bytes = 10}),
              IsError(StatusCode::kResourceExhausted, {"a/1.png", "at most 10"}));
  EXPECT_THAT(refuses({.max_files = 1}),
              IsError(StatusCode::kResourceExhausted, {"more than 1 entries"}));
  EXPECT_THAT(refuses({.channels = 2}), IsError(StatusCode::kInvalidArgument, {"2 channels"}));
  EXPECT_THAT(ErrorOf([&] { ImageFolderExamples((folder_ / "a").string()); }),
              IsError(StatusCode::kNotFound, {"no images in 0"}));
  EXPECT_THAT(ErrorOf([&] { ImageFolderExamples((folder_ / "none").string()); }),
              IsError(StatusCode::kNotFound, {"none"}));
}

// A few bytes for each pass over the picture would take any amount of time.
TEST(JpegImage, MoreScansThanAnyPictureNeedsAreRefused) {
  std::string file = Jpeg(Picture(1, 1), 6, 8, 1, /*progressive=*/true);
  const size_t scan = file.rfind("\xff\xda");
  ASSERT_NE(scan, std::string::npos);
  // The last scan refines one bit: again and again it is damage, which is found first, or a scan
  // too many.
  const std::string last = file.substr(scan, file.size() - 2 - scan);
  std::string bomb = file.substr(0, file.size() - 2);
  for (int i = 0; i < 1000; ++i) bomb += last;
  bomb += "\xff\xd9";
  std::vector<uint8_t> pixels(48);
  EXPECT_THAT(ErrorOf([&] {
                DecodeJpeg(bomb, {6, 8}, 1, absl::MakeSpan(pixels));
              }),
              IsError(StatusCode::kInvalidArgument, {"jpeg: "}));
  DecodeJpeg(file, {6, 8}, 1, absl::MakeSpan(pixels));
}

// Its first scan and the end marker are a picture without detail, which the library finds whole.
TEST(JpegImage, ScansThatAreMissingAreTold) {
  const std::string file = Jpeg(Picture(1, 3), 6, 8, 3, /*progressive=*/true);
  std::vector<size_t> scans;
  for (size_t at = file.find("\xff\xda"); at != file.npos; at = file.find("\xff\xda", at + 2))
    scans.push_back(at);
  ASSERT_GT(scans.size(), 3u);
  std::vector<uint8_t> pixels(3 * 48);
  for (size_t i = 1; i < scans.size(); ++i) {
    EXPECT_THAT(
        ErrorOf([&] {
          DecodeJpeg(file.substr(0, scans[i]) + "\xff\xd9", {6, 8}, 3, absl::MakeSpan(pixels));
        }),
        IsError(StatusCode::kInvalidArgument, {"jpeg: ", "before its last scan"}))
        << i;
  }
  DecodeJpeg(file, {6, 8}, 3, absl::MakeSpan(pixels));
}

}  // namespace
}  // namespace tidepool::nn
