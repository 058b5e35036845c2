#include "tidepool/ndarray/kernel/kept_call.h"

#include <cstring>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool {
namespace {

TEST(KeptCall, NothingOfTheCallersIsNeededAfterwards) {
  float x[6] = {}, z[6] = {};
  std::byte scratch[16];
  std::unique_ptr<KeptCall> kept;
  {
    auto dims = std::make_unique<std::vector<int64_t>>(std::vector<int64_t>{2, 3});
    auto strides = std::make_unique<std::vector<int64_t>>(std::vector<int64_t>{1, 2});
    auto attributes = std::make_unique<Conv2dAttributes>();
    attributes->pad_left = 3;
    attributes->groups = 7;
    TensorRef refs[3];
    refs[0] = {
        .data = x, .present = true, .rank = 2, .dims = dims->data(), .strides = strides->data()};
    refs[2] = {.data = z,
               .present = true,
               .rank = 1,
               .dims = dims->data() + 1,
               .strides = strides->data()};
    const absl::Span<const TensorRef> all = refs;
    KernelCall call{.op = OpCode::kConv2d,
                    .inputs = all.first(2),
                    .outputs = all.subspan(2),
                    .attributes = attributes.get(),
                    .scratch = scratch,
                    .scratch_bytes = sizeof scratch};
    kept = std::make_unique<KeptCall>(call);
    // What the caller does with its own next.
    *dims = {-1, -1};
    *strides = {-1, -1};
    attributes->groups = 0;
    for (TensorRef& ref : refs) ref = TensorRef();
  }
  const KernelCall& call = kept->call();
  ASSERT_EQ(call.inputs.size(), 2u);
  ASSERT_EQ(call.outputs.size(), 1u);
  EXPECT_EQ(call.inputs[0].data, x);
  EXPECT_EQ(call.inputs[0].dims[1], 3);
  EXPECT_EQ(call.inputs[0].strides[1], 2);
  EXPECT_FALSE(call.inputs[1].present);
  EXPECT_EQ(call.outputs[0].NumElements(), 3);
  EXPECT_EQ(call.attrs<Conv2dAttributes>().pad_left, 3);
  EXPECT_EQ(call.attrs<Conv2dAttributes>().groups, 7);

  const std::vector<ByteExtent> extents = kept->Extents();
  ASSERT_EQ(extents.size(), 3u);
  EXPECT_EQ(extents[0].begin, scratch);
  EXPECT_EQ(extents[0].end, scratch + 16);
  EXPECT_EQ(extents[1].end, reinterpret_cast<std::byte*>(x + 6));

  float elsewhere[1];
  kept->TranslateAddresses([&](void* data) -> void* { return data == x ? elsewhere : data; });
  EXPECT_EQ(kept->call().inputs[0].data, elsewhere);
  EXPECT_EQ(kept->call().outputs[0].data, z);
}

// It may begin where the memory ends.
TEST(KeptCall, AnOperandWithoutElementsIsNotTranslated) {
  float x[1] = {};
  const int64_t dims[] = {0}, strides[] = {1};
  const TensorRef empty{.data = x, .present = true, .rank = 1, .dims = dims, .strides = strides};
  KeptCall kept(KernelCall{.op = OpCode::kAdd, .inputs = absl::MakeConstSpan(&empty, 1)});
  int translated = 0;
  kept.TranslateAddresses([&](void* data) {
    ++translated;
    return data;
  });
  EXPECT_EQ(translated, 0);
}

TEST(KeptCall, CallsWithoutAttributes) {
  const KeptCall kept(KernelCall{.op = OpCode::kAdd});
  EXPECT_EQ(kept.call().attributes, nullptr);
  EXPECT_TRUE(kept.Extents().empty());
}

TEST(ExtentOf, ViewsThatGoBackwards) {
  int32_t values[12] = {};
  const int64_t dims[] = {3, 2}, strides[] = {-4, 1};
  TensorRef ref{.data = values + 8,
                .dtype = DType::kInt32,
                .present = true,
                .rank = 2,
                .dims = dims,
                .strides = strides};
  EXPECT_EQ(ExtentOf(ref).begin, reinterpret_cast<std::byte*>(values));
  EXPECT_EQ(ExtentOf(ref).end, reinterpret_cast<std::byte*>(values + 10));
  const int64_t none[] = {3, 0};
  ref.dims = none;
  EXPECT_EQ(ExtentOf(ref).begin, nullptr);
}

}  // namespace
}  // namespace tidepool
