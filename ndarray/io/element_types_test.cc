// Every element type is in every table that has to know of it: docs/backends.md lists them.
#include <cstdlib>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

// Compilers name an enumerator, and write a cast where there is none of that number.
template <DType dtype>
constexpr bool IsEnumerator() {
  const std::string_view name = __PRETTY_FUNCTION__;
  return name.find("dtype = (") == std::string_view::npos &&
         name.find("DType)") == std::string_view::npos;
}
static_assert(IsEnumerator<DType::kFloat32>() && IsEnumerator<static_cast<DType>(kDTypes - 1)>(),
              "kDTypes counts more types than there are");
static_assert(!IsEnumerator<static_cast<DType>(kDTypes)>(),
              "kDTypes counts fewer types than there are");
static_assert(kDTypes <= 8 * sizeof(DTypeSet), "sets of types have a bit for each");
static_assert(operator_list::kAllTypes == (1 << kDTypes) - 1,
              "kAllTypes of op_code.h has a type that there is not, or lacks one");

class ElementTypesTest : public testing::TestWithParam<int> {
 protected:
  const DType dtype_ = static_cast<DType>(GetParam());
  const NDArray x_ = Arange(0, 2, 1, dtype_);
};
INSTANTIATE_TEST_SUITE_P(, ElementTypesTest, testing::Range(0, kDTypes), [](const auto& info) {
  return DTypeName(static_cast<DType>(info.param));
});

TEST_P(ElementTypesTest, IsOneType) {
  VisitDType(dtype_, [&](auto element) {
    EXPECT_EQ(DTypeOf<decltype(element)>::value, dtype_);
    EXPECT_EQ(sizeof(element), DTypeBytes(dtype_));
  });
  ASSERT_NE(DTypeName(dtype_), nullptr);
  for (int i = 0; i < kDTypes; ++i) {
    const DType other = static_cast<DType>(i), both = PromoteTypes(dtype_, other);
    EXPECT_LT(static_cast<int>(both), kDTypes);
    EXPECT_EQ(both, PromoteTypes(other, dtype_));
    EXPECT_EQ(PromoteTypes(both, other), both) << DTypeName(other);
    EXPECT_EQ(std::string_view(DTypeName(other)) == DTypeName(dtype_), other == dtype_);
  }
}

TEST_P(ElementTypesTest, HasTheBuiltInKernels) {
  for (const OpCode op : {OpCode::kFill, OpCode::kCopy}) {
    EXPECT_TRUE(Contains(Info(op).types, dtype_)) << Info(op).name;
    EXPECT_FALSE(KernelRegistry::Find(op, DeviceType::kHost, dtype_).empty()) << Info(op).name;
  }
}

TEST_P(ElementTypesTest, Prints) {
  const std::string text = x_.ToString();
  EXPECT_TRUE(text == "[0, 1]" || text == "[0., 1.]" || text == "[False,  True]") << text;
}

TEST_P(ElementTypesTest, GoesThroughDLPack) {
  const NDArray back = FromDLPack(ToDLPackVersioned(x_));
  EXPECT_EQ(back.dtype(), dtype_);
  EXPECT_EQ(back.ToString(), x_.ToString());
}

TEST_P(ElementTypesTest, GoesThroughFiles) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + DTypeName(dtype_);
  WriteSafetensorsArrays(path, {{"x", x_}});
  EXPECT_EQ(ReadSafetensorsArrays(path).at("x").dtype(), dtype_);
  if (dtype_ == DType::kBFloat16) return;  // has no name in NumPy's files
  WriteNpy(path, x_);
  EXPECT_EQ(ReadNpy(path).dtype(), dtype_);
  EXPECT_EQ(ReadNpy(path).ToString(), x_.ToString());
}

}  // namespace
}  // namespace tidepool
