#include "tidepool/ndarray/io/safetensors_arrays.h"

#include <cstring>
#include <string>

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
  WriteSafetensors(Path("bool.safetensors"), {}, {{{"b", "BOOL", {4}, absl::MakeConstSpan(bytes)}}});
  const NDArray b = ReadSafetensorsArrays(Path("bool.safetensors")).at("b");
  EXPECT_EQ(std::memcmp(b.raw_data(), "\0\1\1\1", 4), 0);
}

TEST(SafetensorsArrays, NothingIsHeldTwiceWhileTheyAreRead) {
  constexpr int64_t kBytes = int64_t{8} << 20;
  WriteSafetensorsArrays(Path("large.safetensors"), {{"x", Arange(0, kBytes / 8, 1, DType::kFloat64)}});
  PeakScope peak;
  const int64_t before = peak.start().in_use;
  const auto arrays = ReadSafetensorsArrays(Path("large.safetensors"));
  EXPECT_EQ(arrays.at("x").At<double>({kBytes / 8 - 1}), static_cast<double>(kBytes / 8 - 1));
  EXPECT_LT(peak.peak_in_use_bytes() - before, kBytes + kBytes / 8);
}

TEST(SafetensorsArrays, OtherTypesAreNamed) {
  const uint16_t value = 1;
  const SafetensorView view{"odd", "U16", {1},
                            absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&value), 2)};
  WriteSafetensors(Path("odd.safetensors"), {}, {view});
  try {
    ReadSafetensorsArrays(Path("odd.safetensors"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(error.message(), HasSubstr("tensor \"odd\": found type U16, expected F32, F64"));
  }
}

}  // namespace
}  // namespace tidepool
