#include "tidepool/nn/data/idx_array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/data/testing/gzip_writer.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;

std::string Written(const std::string& content) {
  const std::string path = testing::TempDir() + "/array.idx";
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

NDArray Read(const std::string& content) { return ReadIdxArray(Written(content)); }

TEST(IdxArray, EveryTypeAndRank) {
  for (const bool zipped : {false, true}) {
    const auto of = [&](uint8_t type, const std::vector<uint32_t>& dims, const std::string& data) {
      const std::string file = Idx(dims, data, type);
      return Read(zipped ? Gzip(file) : file);
    };
    const NDArray bytes = of(0x08, {3}, "\x01\x80\xff");
    EXPECT_EQ(bytes.dtype(), DType::kUInt8);
    EXPECT_THAT(bytes.ToVector<uint8_t>(), ElementsAre(1, 128, 255));
    const NDArray signed_bytes = of(0x09, {1, 2}, "\x7f\x80");
    EXPECT_EQ(signed_bytes.shape(), Shape({1, 2}));
    EXPECT_THAT(signed_bytes.ToVector<int8_t>(), ElementsAre(127, -128));
    const NDArray shorts = of(0x0B, {2}, std::string("\x01\x02\xff\xfe", 4));
    EXPECT_THAT(shorts.ToVector<int16_t>(), ElementsAre(258, -2));
    const NDArray ints = of(0x0C, {1, 1, 2}, std::string("\0\0\1\0\xff\xff\xff\xff", 8));
    EXPECT_EQ(ints.shape(), Shape({1, 1, 2}));
    EXPECT_THAT(ints.ToVector<int32_t>(), ElementsAre(256, -1));
    const NDArray floats = of(0x0D, {2}, std::string("\x3f\xc0\0\0\xc0\x20\0\0", 8));
    EXPECT_THAT(floats.ToVector<float>(), ElementsAre(1.5f, -2.5f));
    const NDArray doubles =
        of(0x0E, {1, 1, 1, 1, 1}, std::string("\x40\x09\x21\xfb\x54\x44\x2d\x18", 8));
    EXPECT_EQ(doubles.rank(), 5);
    EXPECT_THAT(doubles.ToVector<double>(), ElementsAre(3.141592653589793));
    EXPECT_EQ(of(0x0C, {0, 4}, "").shape(), Shape({0, 4}));
    EXPECT_EQ(of(0x08, {}, "x").rank(), 0);
  }
}

TEST(IdxArray, WhatIsWrongIsNamedWithItsByte) {
  const auto error = [](const std::string& content) { return ErrorOf([&] { Read(content); }); };
  EXPECT_THAT(error(Idx({1}, "x", 0x0A)),
              IsError(absl::StatusCode::kDataLoss, {"byte 2", "found 0x0a", "0x0E"}));
  EXPECT_THAT(
      error(Idx({2}, "1234567", 0x0C)),
      IsError(absl::StatusCode::kDataLoss, {"byte 15", "found 7 bytes, too few, expected 8"}));
  EXPECT_THAT(error(Idx({2}, "123456789", 0x0C)),
              IsError(absl::StatusCode::kDataLoss, {"found 9 bytes, too many, expected 8"}));
  EXPECT_THAT(error(Idx({1, 2}, "").substr(0, 9)),
              IsError(absl::StatusCode::kDataLoss, {"byte 9", "a header of 12 bytes for rank 2"}));
  EXPECT_THAT(error(Idx({1u << 31, 1u << 31, 4}, "", 0x0E)),
              IsError(absl::StatusCode::kDataLoss, {"a product below 2^63"}));
  EXPECT_THAT(error(Idx({0, 134348800, 131072, 90466}, "")),
              IsError(absl::StatusCode::kDataLoss,
                      {"byte 4: IDX dimensions: shape [0, 134348800, 131072, 90466] has more"}));
  EXPECT_THAT(error(Idx({1u << 30}, "", 0x0E)),
              IsError(absl::StatusCode::kResourceExhausted, {"which are 8589934592 bytes"}));
  EXPECT_THAT(error(Idx(std::vector<uint32_t>(200, 1), "x")),
              IsError(absl::StatusCode::kUnimplemented, {"byte 3", "found 200"}));
  EXPECT_THAT(error(""), IsError(absl::StatusCode::kDataLoss, {"byte 0"}));
}

}  // namespace
}  // namespace tidepool
