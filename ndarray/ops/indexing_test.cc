// Picking and placing by index: values, views, types, refusals, gradients.
#include "tidepool/ndarray/ops/indexing.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/testing/gradient_check.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr DType kI32 = DType::kInt32;

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}
NDArray I(std::vector<int64_t> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }

TEST(Gather, AnyAxisAndIndexShape) {
  const NDArray x = Arange(0, 12).Reshape({3, 4});
  EXPECT_THAT(Values(Gather(x, I({2, 0}))), ElementsAre(8, 9, 10, 11, 0, 1, 2, 3));
  EXPECT_THAT(Values(Gather(x, I({3, 3, 0}), 1)), ElementsAre(3, 3, 0, 7, 7, 4, 11, 11, 8));
  EXPECT_EQ(Gather(x, I({0, 1, 2, 0}).Reshape({2, 2}), -1).shape(), (Shape{3, 2, 2}));
  // A scalar index takes the axis away.
  EXPECT_THAT(Values(Gather(x, Full({}, 1, kI32), 0)), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(Values(Gather(x, Cast(I({1, 2}), kI32).Slice(0, 1, 2), 0)),
              ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(Values(Gather(x.Transpose(), I({1}), 0)), ElementsAre(1, 5, 9));
  EXPECT_EQ(Gather(x, I({})).shape(), (Shape{0, 4}));
  EXPECT_THAT(Values(Gather(Zeros({0, 2}), I({}))), IsEmpty());
  NDArray z = Empty({2, 4});
  GatherInto(x, I({1, 1}), 0, z);
  EXPECT_THAT(Values(z), ElementsAre(4, 5, 6, 7, 4, 5, 6, 7));
}

// A dense copy of them would be 4 MiB, and of the last one 96 GiB.
TEST(Gather, ViewsWithGapsAreNotCopied) {
  const NDArray table = Arange(0, 1 << 20).Reshape({1024, 1024});
  NDArray z = Empty({3, 4}, DType::kFloat32), across = Empty({4, 3}, DType::kFloat32);
  const NDArray indices = I({7, 0, 1023}), few = I({0, 3, 5, 9}).Slice(0, 0, 4, 1);
  const NDArray repeated = Arange(0, 3).ExpandDims(1).BroadcastTo({3, int64_t{1} << 33});
  PeakScope peak;
  GatherInto(table.Slice(1, 1, 1021, 255), indices, 0, z);
  EXPECT_THAT(Values(z), ElementsAre(7169, 7424, 7679, 7934, 1, 256, 511, 766, 1047553, 1047808,
                                     1048063, 1048318));
  GatherInto(table.Transpose().Slice(1, 0, 4), indices, 0, z);
  EXPECT_THAT(Values(z),
              ElementsAre(7, 1031, 2055, 3079, 0, 1024, 2048, 3072, 1023, 2047, 3071, 4095));
  NDArray turned = across.Transpose();
  GatherInto(table.Slice(1, 0, 1024, 256), indices, 0, turned);
  EXPECT_THAT(Values(across), ElementsAre(7168, 0, 1047552, 7424, 256, 1047808, 7680, 512, 1048064,
                                          7936, 768, 1048320));
  GatherInto(repeated, Full({}, (int64_t{1} << 33) - 1, DType::kInt64).BroadcastTo({4}), 1, z);
  EXPECT_THAT(Values(z), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_LE(peak.peak_bytes() - peak.start().total, 4096);
}

TEST(Gather, Refusals) {
  const NDArray x = Ones({3, 4});
  EXPECT_EQ(Refusal([&] {
              Gather(x, I({0, 3, -1}));
            }),
            "Op [gather]: index 3 at position 1, expected 0 to 2");
  EXPECT_EQ(Refusal([&] {
              Gather(x, Cast(I({0, 0, 0, -1}), kI32).Reshape({2, 2}), 1);
            }),
            "Op [gather]: index -1 at position 3, expected 0 to 3");
  // Every second element of a row, so that positions are counted along the view.
  const NDArray gaps = I({0, 9, 1, 9, -7, 9}).Reshape({3, 2}).Index(1, 0);
  EXPECT_EQ(Refusal([&] { Gather(x, gaps); }),
            "Op [gather]: index -7 at position 2, expected 0 to 2");
  EXPECT_EQ(Refusal([&] {
              Gather(Zeros({0, 2}), I({0}));
            }),
            "Op [gather]: index 0 at position 0, but there is nothing to choose from");
  EXPECT_EQ(Refusal([&] { Gather(x, Ones({2})); }),
            "Op [gather]: indices is f32, expected i64 or i32");
  EXPECT_EQ(Refusal([&] { Gather(x, I({0}), 2); }),
            "Op [gather]: axis 2 of an array of rank 2, expected -2 to 1");
  EXPECT_EQ(
      Refusal([&] {
        Gather(x, Zeros({1, 1, 1, 1, 1, 1, 1, 1}, kI32));
      }),
      "Op [gather]: an array of shape [3, 4] by indices of shape [1, 1, 1, 1, 1, 1, 1, 1] has "
      "rank 9, expected at most 8");
  NDArray z = Empty({2, 3});
  EXPECT_EQ(Refusal([&] {
              GatherInto(x, I({0, 1}), 0, z);
            }),
            "Op [gather]: Z has shape [2, 3], expected [2, 4]");
}

TEST(ScatterAdd, AddsEqualIndicesInOrder) {
  NDArray z = Full({3, 2}, 10);
  ScatterAddInto(Arange(1, 9).Reshape({4, 2}), I({2, 0, 2, 2}), 0, z);
  EXPECT_THAT(Values(z), ElementsAre(13, 14, 10, 10, 23, 26));
  // In float the order shows: (2^24 + 1) + 1 is 2^24, 1 + 1 + 2^24 is not.
  NDArray one = Zeros({1});
  const std::vector<float> updates = {0x1p24f, 1, 1};
  ScatterAddInto(FromValues(absl::MakeConstSpan(updates), {3}), I({0, 0, 0}), 0, one);
  EXPECT_EQ(one.Item<float>(), 0x1p24f);
  NDArray columns = Zeros({2, 3}, kI32);
  ScatterAddInto(Ones({2, 2}, kI32), I({1, 1}), -1, columns);
  EXPECT_THAT(columns.ToVector<int32_t>(), ElementsAre(0, 2, 0, 0, 2, 0));
  ScatterAddInto(Zeros({2, 0}, kI32), I({}), 1, columns);
  EXPECT_THAT(columns.ToVector<int32_t>(), ElementsAre(0, 2, 0, 0, 2, 0));
  NDArray view = Zeros({2, 3}).Transpose();
  ScatterAddInto(Ones({1, 2}), I({1}), 0, view);
  EXPECT_THAT(Values(view), ElementsAre(0, 0, 1, 1, 0, 0));
}

TEST(ScatterAdd, RefusalsLeaveZ) {
  NDArray z = Zeros({3, 2});
  EXPECT_EQ(Refusal([&] {
              ScatterAddInto(Ones({2, 2}), I({0, 3}), 0, z);
            }),
            "Op [scatter_add]: index 3 at position 1, expected 0 to 2");
  EXPECT_EQ(Refusal([&] {
              ScatterAddInto(Ones({2, 3}), I({0, 1}), 0, z);
            }),
            "Op [scatter_add]: updates has shape [2, 3], expected [2, 2]");
  EXPECT_EQ(Refusal([&] {
              ScatterAddInto(Ones({2, 2}, kI32), I({0, 1}), 0, z);
            }),
            "Op [scatter_add]: updates is i32, expected f32");
  EXPECT_THAT(Values(z), ElementsAre(0, 0, 0, 0, 0, 0));
  NDArray half = Zeros({3}, DType::kFloat16);
  EXPECT_EQ(Refusal([&] {
              ScatterAddInto(half, I({0, 1, 2}), 0, half);
            }),
            "Op [scatter_add]: Z is f16, expected f32, f64, i32 or i64");
  EXPECT_EQ(Refusal([&] { GatherGrad(Ones({2}), I({0}), {3}); }),
            "Op [scatter_add]: updates has shape [2], expected [1]");
}

TEST(Embedding, LookupAndGradient) {
  NDArray table = RandomUniform({7, 3}, -1, 1, 4);
  const NDArray tokens = I({6, 0, 6, 2, 2, 2}).Reshape({2, 3});
  const NDArray dz = RandomUniform({2, 3, 3}, -1, 1, 5);
  EXPECT_EQ(EmbeddingLookup(table, tokens).shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(EmbeddingLookup(table, tokens), dz); }, table,
                            EmbeddingGrad(dz, tokens, table.shape())),
            "");
  NDArray x = RandomUniform({2, 4, 3}, -1, 1, 6);
  const NDArray picks = I({3, 3, 0});
  const NDArray dy = RandomUniform({2, 3, 3}, -1, 1, 7);
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(Gather(x, picks, 1), dy); }, x,
                            GatherGrad(dy, picks, x.shape(), 1)),
            "");
  // scatter_add is linear in the updates: its gradient gathers.
  NDArray updates = RandomUniform({3, 2}, -1, 1, 8);
  const NDArray dsum = RandomUniform({4, 2}, -1, 1, 9);
  auto loss = [&] {
    NDArray z = Zeros({4, 2});
    ScatterAddInto(updates, picks, 0, z);
    return WeightedSum(z, dsum);
  };
  EXPECT_EQ(GradientProblem(loss, updates, Gather(dsum, picks)), "");
}

// 300 ones in bf16 stop at 256.
TEST(Embedding, GradientsOfHalfTypesAreSumsInF32) {
  for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
    const NDArray gradient =
        GatherGrad(Full({300, 2}, 1.0 + 1.0 / 128, type), Zeros({300}, DType::kInt64), {2, 2});
    EXPECT_EQ(gradient.dtype(), type);
    EXPECT_THAT(Values(Cast(gradient, DType::kFloat32)),
                ElementsAre(type == DType::kBFloat16 ? 302 : 302.25,
                            type == DType::kBFloat16 ? 302 : 302.25, 0, 0));
  }
}

TEST(OneHot, ValuesAndRefusals) {
  EXPECT_THAT(Values(OneHot(I({2, 0}), 3)), ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_THAT(OneHot(Full({}, 1, kI32), 2, DType::kInt8, 5, -1).ToVector<int8_t>(),
              ElementsAre(-1, 5));
  EXPECT_EQ(OneHot(I({}), 4).shape(), (Shape{0, 4}));
  EXPECT_EQ(Refusal([] {
              OneHot(I({0, 3}), 3);
            }),
            "Op [one_hot]: index 3 at position 1, expected 0 to 2");
  EXPECT_EQ(Refusal([] { OneHot(I({0}), -1); }), "Op [one_hot]: depth is -1, expected at least 0");
}

TEST(Flip, AxesAndTypes) {
  const NDArray x = Arange(0, 6, 1, DType::kUInt8).Reshape({2, 3});
  auto all = [](const NDArray& z) { return z.ToVector<uint8_t>(); };
  EXPECT_THAT(all(Flip(x)), ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_THAT(all(Flip(x, 0)), ElementsAre(3, 4, 5, 0, 1, 2));
  EXPECT_THAT(all(Flip(x, -1)), ElementsAre(2, 1, 0, 5, 4, 3));
  EXPECT_THAT(all(Flip(x.Transpose(), 0)), ElementsAre(2, 5, 1, 4, 0, 3));
  EXPECT_EQ(Flip(Full({}, 3)).Item<float>(), 3);
  EXPECT_EQ(Refusal([&] { Flip(x, 2); }),
            "Op [flip]: axis 2 of an array of rank 2, expected -2 to 1");
}

TEST(Triangle, UpperLowerAndMasks) {
  const NDArray x = Arange(1, 7).Reshape({2, 3});
  EXPECT_THAT(Values(UpperTriangle(x)), ElementsAre(1, 2, 3, 0, 5, 6));
  EXPECT_THAT(Values(UpperTriangle(x, 1)), ElementsAre(0, 2, 3, 0, 0, 6));
  EXPECT_THAT(Values(LowerTriangle(x)), ElementsAre(1, 0, 0, 4, 5, 0));
  EXPECT_THAT(Values(LowerTriangle(x, -1)), ElementsAre(0, 0, 0, 4, 0, 0));
  EXPECT_THAT(Values(LowerTriangle(x, INT64_MAX)), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Values(UpperTriangle(x, INT64_MIN)), ElementsAre(1, 2, 3, 4, 5, 6));
  NDArray z = Ones({2, 2, 2});
  UpperTriangleInto(z, 0, z);
  EXPECT_THAT(Values(z), ElementsAre(1, 1, 0, 1, 1, 1, 0, 1));
  EXPECT_THAT(LowerTriangularMask(2, 3).ToVector<bool>(),
              ElementsAre(true, false, false, true, true, false));
  EXPECT_EQ(Refusal([] { LowerTriangle(Ones({3})); }),
            "Op [triangle]: X has shape [3], expected at least rank 2");
}

}  // namespace
}  // namespace tidepool
