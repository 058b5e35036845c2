#include "tidepool/nn/data/digits.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/data/testing/gzip_writer.h"

namespace tidepool {
namespace {

using absl::StatusCode;

const char* const kNames[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                              "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

LabelledImages Read(const std::string& images, const std::string& labels, int classes = 3) {
  return ReadLabelledImages(WriteTestFile("images", images), WriteTestFile("labels", labels),
                            classes);
}

void ExpectDataLoss(const std::string& images, const std::string& labels,
                    std::vector<std::string> parts) {
  EXPECT_THAT(ErrorOf([&] { Read(images, labels); }), IsError(StatusCode::kDataLoss, parts));
}

// Three training images and two test images of 2x1; `suffix` ".gz" compresses.
std::string NewFolder(const std::string& suffix,
                      const std::string& test_images = Idx({2, 2, 1}, "uvwx")) {
  static int count = 0;
  const std::string folder = "digits" + std::to_string(count++);
  std::filesystem::create_directory(testing::TempDir() + "/" + folder);
  const std::string contents[] = {Idx({3, 2, 1}, "abcdef"), Idx({3}, std::string("\0\1\2", 3)),
                                  test_images, Idx({2}, "\2\1")};
  for (int i = 0; i < 4; ++i) {
    WriteTestFile(folder + "/" + kNames[i] + suffix,
                  suffix.empty() ? contents[i] : Gzip(contents[i]));
  }
  return testing::TempDir() + "/" + folder;
}

// Counts from an independent reading with Python's gzip and collections.Counter.
TEST(LoadImageFolder, TheDigitsOfTheRepository) {
  const ImageFolder digits = LoadImageFolder("examples/data/mnist");
  EXPECT_EQ(digits.train.count, 8000);
  EXPECT_EQ(digits.test.count, 1000);
  for (const LabelledImages* part : {&digits.train, &digits.test}) {
    EXPECT_EQ(part->height, 28);
    EXPECT_EQ(part->width, 28);
    EXPECT_EQ(part->classes, 10);
    EXPECT_EQ(part->pixels.size(), part->count * 28u * 28u);
    EXPECT_EQ(part->labels.size(), static_cast<size_t>(part->count));
  }
  const auto sum = [](const std::vector<uint8_t>& v) {
    return std::accumulate(v.begin(), v.end(), int64_t{0});
  };
  EXPECT_EQ(sum(digits.train.pixels), 209553165);
  EXPECT_EQ(sum(digits.test.pixels), 26171823);
  std::vector<int> histogram(10);
  for (const uint8_t label : digits.train.labels) ++histogram[label];
  EXPECT_THAT(histogram, testing::ElementsAre(815, 907, 792, 820, 779, 697, 809, 857, 739, 785));
  EXPECT_THAT(std::vector<uint8_t>(digits.test.labels.begin(), digits.test.labels.begin() + 8),
              testing::ElementsAre(4, 5, 1, 6, 2, 0, 8, 5));
}

TEST(LoadImageFolder, PlainGzipAndAFolderWithASlash) {
  for (const std::string& folder : {NewFolder(""), NewFolder(".gz"), NewFolder(".gz") + "/"}) {
    const ImageFolder data = LoadImageFolder(folder, 3);
    EXPECT_THAT(data.train.pixels, testing::ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
    EXPECT_THAT(data.train.labels, testing::ElementsAre(0, 1, 2));
    EXPECT_EQ(data.test.count, 2);
    EXPECT_EQ(data.test.height, 2);
    EXPECT_EQ(data.test.width, 1);
    EXPECT_EQ(data.test.classes, 3);
  }
}

TEST(LoadImageFolder, PrefersThePlainFile) {
  const std::string folder = NewFolder("");
  std::ofstream(folder + "/" + kNames[0] + ".gz") << "not gzip at all";
  EXPECT_EQ(LoadImageFolder(folder).train.count, 3);
}

TEST(LoadImageFolder, MissingFolderNamesEveryPath) {
  const std::string folder = testing::TempDir() + "/nowhere";
  std::vector<std::string> parts = {folder, "found no such folder", "expected one of each pair"};
  for (const char* name : kNames) {
    parts.push_back(folder + "/" + name + ",");
    parts.push_back(folder + "/" + name + ".gz");
  }
  parts[9] = folder + "/" + kNames[3];
  EXPECT_THAT(ErrorOf([&] { LoadImageFolder(folder); }), IsError(StatusCode::kNotFound, parts));
}

TEST(LoadImageFolder, MissingFileNamesBothPathsOfItAlone) {
  const std::string folder = NewFolder("");
  std::filesystem::remove(folder + "/" + kNames[1]);
  const Error error = ErrorOf([&] { LoadImageFolder(folder); });
  EXPECT_THAT(error, IsError(StatusCode::kNotFound, {"found a folder without these files",
                                                     folder + "/train-labels-idx1-ubyte, " +
                                                         folder + "/train-labels-idx1-ubyte.gz"}));
  EXPECT_THAT(error.message(), testing::Not(testing::HasSubstr("images-idx3")));
}

TEST(LoadImageFolder, SizesOfTrainAndTestMustAgree) {
  const std::string folder = NewFolder("", Idx({2, 1, 1}, "ab"));
  EXPECT_THAT(
      ErrorOf([&] { LoadImageFolder(folder); }),
      IsError(StatusCode::kDataLoss, {folder, "t10k-images-idx3-ubyte", "byte 8",
                                      "found images of 1x1", "expected 2x1", "train-images"}));
}

TEST(LoadImageFolder, AFolderInPlaceOfAFile) {
  const std::string folder = NewFolder("");
  std::filesystem::remove(folder + "/" + kNames[2]);
  std::filesystem::create_directory(folder + "/" + kNames[2]);
  EXPECT_THAT(
      ErrorOf([&] { LoadImageFolder(folder); }),
      IsError(StatusCode::kFailedPrecondition, {folder + "/" + kNames[2], "Is a directory"}));
}

TEST(ReadLabelledImages, CountsMustAgree) {
  ExpectDataLoss(Idx({2, 1, 1}, "ab"), Idx({3}, "\1\1\1"),
                 {"labels: byte 4", "found 3 labels", "expected 2", "images"});
}

// The files of images end behind their headers: all else is looked at before that is found.
TEST(ReadLabelledImages, PixelsAreReadLast) {
  ExpectDataLoss(Idx({2, 28, 28}, ""), Idx({3}, "\1\1\1"), {"labels: byte 4", "found 3 labels"});
  ExpectDataLoss(Idx({2, 28, 28}, ""), Idx({2}, "\1\3"), {"labels: byte 9", "found 3"});
  ExpectDataLoss(Idx({2, 28, 28}, ""), Idx({2}, "\1\1"), {"images: byte 16", "too few"});
  // Of labels nothing but their number.
  ExpectDataLoss(Idx({2, 28, 28}, ""), Idx({1u << 31}, ""),
                 {"labels: byte 4", "2147483648 labels"});
  const std::string images = WriteTestFile("images", Idx({2, 28, 28}, ""));
  const std::string labels = WriteTestFile("labels", Idx({2}, ""));
  EXPECT_EQ(ErrorOf([&] {
              ReadLabelledImages(images, labels, 3, kMaxIdxBytes,
                                 [](absl::Span<const int64_t>) { ThrowInvalidArgument("size"); });
            }).message(),
            "size");
  const std::string folder = NewFolder("", Idx({2, 1, 1}, ""));
  EXPECT_THAT(ErrorOf([&] { LoadImageFolder(folder); }),
              IsError(StatusCode::kDataLoss, {"byte 8", "found images of 1x1"}));
}

TEST(ReadLabelledImages, LabelsMustBeClasses) {
  ExpectDataLoss(Idx({3, 1, 1}, "abc"), Idx({3}, "\1\2\3"),
                 {"labels: byte 10", "label 2", "found 3", "expected 0..2"});
  EXPECT_EQ(Read(Idx({1, 1, 1}, "a"), Idx({1}, "\xff"), 256).labels[0], 255);
  for (const int classes : {0, 257, -1}) {
    EXPECT_THAT(ErrorOf([&] {
                  Read(Idx({1, 1, 1}, "a"), Idx({1}, "\1"), classes);
                }),
                IsError(StatusCode::kInvalidArgument,
                        {"classes", "found " + std::to_string(classes), "1 to 256"}));
  }
}

TEST(ReadLabelledImages, NoImages) {
  ExpectDataLoss(Idx({0, 28, 28}, ""), Idx({0}, ""),
                 {"images: byte 4", "found 0 images of 28x28", "expected at least one"});
  ExpectDataLoss(Idx({2, 0, 28}, ""), Idx({2}, "\1\1"),
                 {"images: byte 4", "found [2,0,28]", "items of at least one element"});
}

TEST(ReadLabelledImages, SwappedFiles) {
  ExpectDataLoss(Idx({1}, "\1"), Idx({1, 1, 1}, "a"),
                 {"images: byte 3", "rank", "found 1", "expected 3"});
}

}  // namespace
}  // namespace tidepool
