#include "tidepool/ndarray/io/safetensors_arrays.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/safetensors_file.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

std::string Path(const std::string& name) { return testing::TempDir() + "/" + name; }

TEST(SafetensorsArrays, EveryTypeGoesThereAndBackAndViewsBecomeDense) {
  std::map<std::string, NDArray> arrays;
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    arrays[DTypeName(dtype)] = Arange(0, 6, 1, dtype).Reshape({2, 3}).Transpose();
  }
  arrays["scalar"] = Full({}, 4);
  arrays["empty"] = Zeros({0, 2});
  WriteSafetensorsArrays(Path("a.safetensors"), arrays, {{"made", "here"}});
  const std::map<std::string, NDArray> back = ReadSafetensorsArrays(Path("a.safetensors"));
  ASSERT_EQ(back.size(), arrays.size());
  for (const auto& [name, array] : arrays) {
    EXPECT_EQ(back.at(name).dtype(), array.dtype()) << name;
    EXPECT_EQ(back.at(name).shape(), array.shape()) << name;
    EXPECT_EQ(back.at(name).ToString(), array.ToString()) << name;
  }
  EXPECT_EQ(SafetensorsReader::Open(Path("a.safetensors")).metadata().at("made"), "here");
}

TEST(SafetensorsArrays, BoolsAreZeroOrOne) {
  const std::byte bytes[] = {std::byte{0}, std::byte{1}, std::byte{2}, std::byte{255}};
  WriteSafetensors(Path("bool.safetensors"), {},
                   {{{"b", "BOOL", {4}, absl::MakeConstSpan(bytes)}}});
  const NDArray b = ReadSafetensorsArrays(Path("bool.safetensors")).at("b");
  EXPECT_EQ(std::memcmp(b.raw_data(), "\0\1\1\1", 4), 0);
}

TEST(SafetensorsArrays, ArraysThatCannotTakeATensorAreNotTouched) {
  WriteSafetensorsArrays(Path("x.safetensors"),
                         {{"x", Arange(0, 6, 1, DType::kFloat32).Reshape({2, 3})}});
  const SafetensorsReader reader = SafetensorsReader::Open(Path("x.safetensors"));
  const SafetensorInfo& info = reader.Find("x");
  const auto refusal = [&](NDArray array) -> std::string {
    const std::string before = array.is_defined() && !array.is_closed() ? array.ToString() : "";
    try {
      ReadSafetensor(reader, info, array);
    } catch (const Error& error) {
      if (!before.empty()) {
        EXPECT_EQ(array.ToString(), before);
      }
      return std::string(error.message());
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal(NDArray()), HasSubstr("read_safetensor"));
  EXPECT_THAT(refusal(Zeros({5})),
              HasSubstr("tensor \"x\": found an array of 5 elements, expected 6"));
  EXPECT_THAT(refusal(Zeros({2, 4}).Slice(1, 0, 2)), HasSubstr("found an array of 4 elements"));
  EXPECT_THAT(refusal(Zeros({6}, DType::kInt32)), HasSubstr("found an array of I32, expected F32"));
  EXPECT_THAT(refusal(Zeros({3, 2}).Transpose()),
              HasSubstr("elements lie apart, expected a dense one"));
  NDArray closed = Zeros({6});
  closed.Close();
  EXPECT_THAT(refusal(closed), HasSubstr("closed"));
  NDArray good = Zeros({3, 2});
  // An info that is not the file's, whatever fits it.
  SafetensorInfo altered = info;
  altered.begin = altered.end, altered.shape = {0};
  NDArray nothing = Zeros({0});
  EXPECT_EQ(CatchStatus([&] { ReadSafetensor(reader, altered, nothing); }).code(),
            absl::StatusCode::kInvalidArgument);
  altered = info, altered.dtype = "I32";
  NDArray integers = Zeros({6}, DType::kInt32);
  EXPECT_EQ(CatchStatus([&] { ReadSafetensor(reader, altered, integers); }).code(),
            absl::StatusCode::kInvalidArgument);
  ReadSafetensor(reader, info, good);
  EXPECT_EQ(good.ToVector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(integers.ToVector<int32_t>(), std::vector<int32_t>(6));
}

TEST(SafetensorsArrays, NothingIsHeldTwiceWhileTheyAreRead) {
  constexpr int64_t kBytes = int64_t{8} << 20;
  WriteSafetensorsArrays(Path("large.safetensors"),
                         {{"x", Arange(0, kBytes / 8, 1, DType::kFloat64)}});
  PeakScope peak;
  const int64_t before = peak.start().in_use;
  const auto arrays = ReadSafetensorsArrays(Path("large.safetensors"));
  EXPECT_EQ(arrays.at("x").At<double>({kBytes / 8 - 1}), static_cast<double>(kBytes / 8 - 1));
  EXPECT_LT(peak.peak_in_use_bytes() - before, kBytes + kBytes / 8);
}

TEST(SafetensorsArrays, ShapesThatArraysDoNotHaveAreNamed) {
  const std::string path = testing::TempDir() + "/shapes.safetensors";
  const std::byte byte{1};
  const auto write = [&](const std::vector<int64_t>& shape, size_t bytes) {
    const std::vector<SafetensorView> tensors = {
        {"first", "U8", {}, absl::MakeConstSpan(&byte, 1)},
        {"strange", "U8", shape, absl::MakeConstSpan(&byte, bytes)}};
    WriteSafetensors(path, {}, tensors);
    try {
      ReadSafetensorsArrays(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
      EXPECT_LT(error.message().size(), 1000);
      return error.message();
    }
    return std::string("read");
  };
  const std::string where = path + ": tensor \"strange\": shape: found ";
  EXPECT_EQ(write({1, 1, 1, 1, 1, 1, 1, 1}, 1), "read");
  EXPECT_EQ(write({1, 1, 1, 1, 1, 1, 1, 1, 1}, 1),
            where + "[1,1,1,1,1,1,1,1,1], expected rank 0 to 8");
  EXPECT_THAT(write(std::vector<int64_t>(100000, 1), 1),
              testing::HasSubstr("...] of rank 100000, expected rank 0 to 8"));
  EXPECT_THAT(write({0, int64_t{1} << 62}, 0),
              testing::StartsWith(where + "[0,4611686018427387904], expected a shape"));
}

TEST(SafetensorsArrays, OtherTypesAreNamed) {
  const uint16_t value = 1;
  const SafetensorView view{
      "odd", "F8_E4M3", {2}, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&value), 2)};
  WriteSafetensors(Path("odd.safetensors"), {}, {view});
  try {
    ReadSafetensorsArrays(Path("odd.safetensors"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(error.message(),
                HasSubstr("tensor \"odd\": found type F8_E4M3, expected F32, F64"));
  }
}

}  // namespace
}  // namespace tidepool
