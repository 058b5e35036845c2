// Reductions by the functions users call: axes, shapes, types, views, nothing to reduce, refusals.
#include "tidepool/ndarray/ops/reduction.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/testing/gradient_check.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsNan;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kF64 = DType::kFloat64, kI64 = DType::kInt64;

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}
NDArray F(std::vector<float> values, const Shape& shape) { return FromValues(values, shape); }
NDArray I(std::vector<int64_t> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }
std::vector<int64_t> Ints(const NDArray& x) { return x.ToVector<int64_t>(); }

TEST(Reduction, AnyRankAndView) {
  const NDArray x = Arange(0, 24).Reshape({2, 3, 4});
  EXPECT_EQ(Sum(x).Item<float>(), 276);
  EXPECT_EQ(Sum(x, 0).shape(), (Shape{3, 4}));
  EXPECT_THAT(Values(Sum(x, 0).Index(0, 2)), ElementsAre(28, 30, 32, 34));
  EXPECT_EQ(Sum(x, -1).shape(), (Shape{2, 3}));
  EXPECT_THAT(Values(Sum(x, -1).Index(0, 1)), ElementsAre(54, 70, 86));
  EXPECT_THAT(Values(Sum(x.Index(1, 0).Transpose(), 0)), ElementsAre(6, 54));
  NDArray z = Empty({4});
  SumToLastAxisInto(x, z);
  EXPECT_THAT(Values(z), ElementsAre(60, 66, 72, 78));
  EXPECT_EQ(Sum(Full({}, 5)).Item<float>(), 5);
  EXPECT_EQ(Sum(Arange(0, 4), 0).Item<float>(), 6);
  EXPECT_EQ(Mean(x).Item<float>(), 11.5f);
  EXPECT_EQ(ArgMax(x).shape(), (Shape{2, 3}));
  EXPECT_THAT(Ints(ArgMax(x.Index(0, 0).Transpose())), ElementsAre(2, 2, 2, 2));
}

TEST(Reduction, SetsOfAxes) {
  const NDArray x = Arange(0, 24).Reshape({2, 3, 4});
  EXPECT_THAT(Values(Sum(x, {0, 2})), ElementsAre(60, 92, 124));
  EXPECT_THAT(Values(Sum(x, {-1, 0})), ElementsAre(60, 92, 124));
  EXPECT_THAT(Values(Sum(x, 1)), ElementsAre(12, 15, 18, 21, 48, 51, 54, 57));
  EXPECT_THAT(Values(Sum(x, {1})), ElementsAre(12, 15, 18, 21, 48, 51, 54, 57));
  EXPECT_EQ(Sum(x, {}).Item<float>(), 276);
  EXPECT_EQ(Sum(x, {0, 1, 2}).shape(), Shape{});
  EXPECT_EQ(Sum(x, {0, 2}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(Sum(x, {}, true).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(ArgMax(x, 1, true).shape(), (Shape{2, 1, 4}));
  const std::vector<int> axes = {1, 2};
  EXPECT_THAT(Values(Max(x, axes)), ElementsAre(11, 23));
  EXPECT_THAT(Values(Min(x, absl::MakeConstSpan(axes))), ElementsAre(0, 12));
  // The kept form broadcasts.
  EXPECT_THAT(Values(Sum(x - Mean(x, {0, 2}, true), {0, 2})), ElementsAre(0, 0, 0));
  const NDArray deep = Ones({1, 2, 1, 3, 1, 2, 1, 2});
  EXPECT_EQ(Sum(deep, {1, 3, 7}).shape(), (Shape{1, 1, 1, 2, 1}));
  EXPECT_THAT(Values(Sum(deep, {1, 3, 7})), ElementsAre(12, 12));
}

TEST(Reduction, TypesOfResults) {
  for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16,
                            DType::kInt32, DType::kUInt32, kI64, DType::kBool}) {
    const NDArray x = Ones({300}, dtype);
    EXPECT_EQ(Sum(x).Item<int64_t>(), 300) << DTypeName(dtype);
    EXPECT_EQ(Prod(x).Item<int64_t>(), 1) << DTypeName(dtype);
    EXPECT_EQ(Mean(x).Item<double>(), 1) << DTypeName(dtype);
    EXPECT_EQ(Max(x).dtype(), dtype);
    EXPECT_TRUE(All(x).Item<bool>());
    EXPECT_EQ(ArgMax(x).Item<int64_t>(), 0);
  }
  for (const DType dtype : {DType::kFloat32, kF64, DType::kFloat16, DType::kBFloat16}) {
    const NDArray x = Full({5}, 3, dtype);
    for (const NDArray& z : {Sum(x), Prod(x), Mean(x), Variance(x), Norm1(x), Norm2(x), NormInf(x),
                             LogSumExp(x), Max(x), Min(x)}) {
      EXPECT_EQ(z.dtype(), dtype);
    }
    EXPECT_EQ(Any(x).dtype(), DType::kBool);
  }
  const NDArray large = Full({2}, uint64_t{3} << 62, DType::kUInt64);
  EXPECT_EQ(Sum(large).Item<uint64_t>(), uint64_t{1} << 63);
  EXPECT_EQ(Mean(large).Item<double>(), 3 * 0x1p62);
  EXPECT_EQ(Max(large).Item<uint64_t>(), uint64_t{3} << 62);
  EXPECT_EQ(Norm2(I({3, 4})).Item<double>(), 5);
  EXPECT_EQ(Variance(I({1, 2, 3, 4}), {}, 1).Item<double>(), 5.0 / 3);
  // As i64 their sum would wrap; f16 holds no sum above 65504, but the mean.
  EXPECT_EQ(Mean(I({INT64_MAX, INT64_MAX})).Item<double>(), 0x1p63);
  EXPECT_EQ(static_cast<float>(Mean(Full({1000}, 60000, DType::kFloat16)).Item<Float16>()), 60000);
}

TEST(Reduction, NaNAsInNumPy) {
  const NDArray x = F({1, NAN, 3, 4, 5, 6, NAN, NAN, -1}, {3, 3});
  EXPECT_THAT(Values(Max(x, 1)), ElementsAre(IsNan(), 6, IsNan()));
  EXPECT_THAT(Values(Min(x, 0)), ElementsAre(IsNan(), IsNan(), -1));
  EXPECT_THAT(Ints(ArgMax(x, 1)), ElementsAre(1, 2, 0));
  EXPECT_THAT(Ints(ArgMin(x, 0)), ElementsAre(2, 0, 2));
  EXPECT_THAT(Values(NormInf(x, 1)), ElementsAre(IsNan(), 6, IsNan()));
  EXPECT_THAT(Any(x, 1).ToVector<bool>(), ElementsAre(true, true, true));
  EXPECT_TRUE(Any(F({0, NAN}, {2})).Item<bool>());
  EXPECT_TRUE(std::isnan(LogSumExp(x).Item<float>()));
}

TEST(Reduction, InfinitiesOfLogSumExp) {
  EXPECT_EQ(LogSumExp(F({-INFINITY, -INFINITY}, {2})).Item<float>(), -INFINITY);
  EXPECT_EQ(LogSumExp(F({1, INFINITY}, {2})).Item<float>(), INFINITY);
  EXPECT_FLOAT_EQ(LogSumExp(F({1000, 1000}, {2})).Item<float>(), 1000 + std::log(2.0f));
}

TEST(Reduction, ViewsAreReducedUnderAForcedProvider) {
  ScopedProvider forced("reference");
  EXPECT_EQ(Sum(Ones({3, 4}).Transpose()).Item<float>(), 12);
  EXPECT_EQ(Sum(Zeros({3, 0})).Item<float>(), 0);
}

TEST(Reduction, OfNothing) {
  EXPECT_EQ(Sum(Zeros({0})).Item<float>(), 0);
  EXPECT_THAT(Values(Sum(Zeros({0, 3}), 0)), ElementsAre(0, 0, 0));
  EXPECT_THAT(Values(Sum(Zeros({3, 0}), 0)), IsEmpty());
  EXPECT_TRUE(std::isnan(Mean(Zeros({0})).Item<float>()));
  EXPECT_THAT(Ints(ArgMax(Zeros({0, 3}))), IsEmpty());
  const NDArray none = Zeros({2, 0}, kF64);
  auto all = [](const NDArray& x) { return x.ToVector<double>(); };
  EXPECT_THAT(all(Prod(none, 1)), ElementsAre(1, 1));
  EXPECT_THAT(all(Variance(none, 1)), ElementsAre(IsNan(), IsNan()));
  EXPECT_THAT(all(Norm2(none, 1)), ElementsAre(0, 0));
  EXPECT_THAT(all(LogSumExp(none, 1)), ElementsAre(-kInf, -kInf));
  EXPECT_THAT(Any(none, 1).ToVector<bool>(), ElementsAre(false, false));
  EXPECT_THAT(All(none, 1).ToVector<bool>(), ElementsAre(true, true));
  EXPECT_THAT(all(Max(none, 0)), IsEmpty());
  EXPECT_EQ(Refusal([&] { Max(none, 1); }), "Op [max]: X has shape [2, 0], nothing to choose from");
  // More degrees of freedom than elements.
  EXPECT_EQ(Variance(F({1, 2}, {2}), {}, 2).Item<float>(), INFINITY);
  EXPECT_TRUE(std::isnan(Variance(F({1}, {1}), {}, 1).Item<float>()));
}

TEST(Reduction, PlacesInARankOfNone) {
  for (const int axis : {0, -1}) {
    for (const NDArray& place : {ArgMax(Full({}, 3), axis), ArgMin(Full({}, kNaN), axis, true)}) {
      EXPECT_EQ(place.shape(), Shape({}));
      EXPECT_EQ(place.Item<int64_t>(), 0);
    }
  }
}

TEST(Reduction, IntoGivenArrays) {
  const NDArray x = Arange(0, 6).Reshape({2, 3});
  NDArray board = Full({3, 2}, -1), column = board.Index(1, 0);
  SumInto(x, 0, column);
  EXPECT_THAT(Values(board), ElementsAre(3, -1, 5, -1, 7, -1));
  NDArray kept = Full({2, 1}, 0);
  MeanInto(x, 1, kept);
  EXPECT_THAT(Values(kept), ElementsAre(1, 4));
  NDArray one = Empty({1, 1});
  MaxInto(x, {}, one);
  EXPECT_EQ(one.Item<float>(), 5);
  NDArray z = Empty({3});
  MinInto(x, 0, z);
  EXPECT_THAT(Values(z), ElementsAre(0, 1, 2));
  VarianceInto(x, 0, 0, z);
  EXPECT_THAT(Values(z), ElementsAre(2.25, 2.25, 2.25));
  Norm2Into(F({3, 0, 1, 4, 0, 0}, {2, 3}), 0, z);
  EXPECT_THAT(Values(z), ElementsAre(5, 0, 1));
  LogSumExpInto(Zeros({1, 3}), 0, z);
  EXPECT_THAT(Values(z), ElementsAre(0, 0, 0));
  NDArray places = Empty({2}, kI64);
  ArgMaxInto(x, 1, places);
  EXPECT_THAT(Ints(places), ElementsAre(2, 2));
  EXPECT_EQ(Refusal([&] { SumInto(x, 1, z); }), "Op [sum]: Z has shape [3], expected [2]");
  EXPECT_EQ(Refusal([&] { SumInto(x, 0, places); }), "Op [sum]: Z is i64, expected f32");
  NDArray row = x.Index(0, 1);
  EXPECT_EQ(Refusal([&] { SumInto(x, 0, row); }),
            "Op [sum]: output Z overlaps input X; the operator is not done in place");
}

TEST(Reduction, Refusals) {
  EXPECT_EQ(Refusal([] {
              Sum(Ones({2, 3}), 2);
            }),
            "Op [sum]: axis 2 of an array of rank 2, expected -2 to 1");
  EXPECT_EQ(Refusal([] { Sum(Ones({2, 3}), {1, -1}); }), "Op [sum]: axis -1 comes twice");
  EXPECT_EQ(Refusal([] {
              Sum(Ones({2, 3}), std::vector<int>(9, 0));
            }),
            "axes: 9 of them, expected at most 8");
  NDArray z = Ones({2});
  EXPECT_EQ(Refusal([&] {
              SumToLastAxisInto(Ones({2, 3}), z);
            }),
            "Op [sum]: Z has shape [2], expected [3]");
  EXPECT_EQ(Refusal([&] { SumToLastAxisInto(Ones({}), z); }),
            "Op [sum]: X has rank 0, expected at least 1");
  EXPECT_EQ(Refusal([] { LogSumExp(Ones({2}, kI64)); }),
            "Op [log_sum_exp]: X is i64, expected a float type");
  EXPECT_EQ(Refusal([] { Variance(Ones({2}, DType::kBool)); }),
            "Op [variance]: X is bool, expected a number type");
  EXPECT_EQ(Refusal([] { Variance(Ones({2}), {}, -1); }),
            "Op [variance]: ddof is -1, expected at least 0");
  EXPECT_EQ(Refusal([] {
              ArgMax(Ones({2, 0}));
            }),
            "Op [argmax]: X has shape [2, 0], nothing to choose from");
  EXPECT_EQ(Refusal([] { ArgMin(Ones({}), 1); }),
            "Op [argmin]: axis 1 of an array of rank 0, which has none");
  EXPECT_EQ(Refusal([] { Min(Ones({0})); }), "Op [min]: X has shape [0], nothing to choose from");
}

// The gradient of log_sum_exp is the softmax; that of the variance 2 (x - mean) / (n - ddof).
TEST(Reduction, Gradients) {
  NDArray x = RandomUniform({4, 7}, -2, 2, 11);
  const NDArray w = RandomUniform({4}, -1, 1, 12);
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(LogSumExp(x, 1), w); }, x,
                            Softmax(x) * w.Reshape({4, 1})),
            "");
  const NDArray deviations = (x - Mean(x, 1, true)) * (2.0 / 6);
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(Variance(x, 1, 1), w); }, x,
                            deviations * w.Reshape({4, 1})),
            "");
}

}  // namespace
}  // namespace tidepool
