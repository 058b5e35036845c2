// Values of the reference's reductions, against numbers worked out by hand and sums over indices
// written another way.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsNan;
using ::testing::Pointwise;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

NDArray D(std::vector<double> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
NDArray F(std::vector<float> values, const Shape& shape) { return FromValues(values, shape); }
NDArray I(std::vector<int64_t> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }
std::vector<int64_t> Ints(const NDArray& x) { return x.ToVector<int64_t>(); }

TEST(ReferenceReduction, Sums) {
  const NDArray x = F({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(Sum(x).Item<float>(), 21);
  EXPECT_THAT(Values(Sum(x, 0)), ElementsAre(5, 7, 9));
  EXPECT_THAT(Values(Sum(x, 1)), ElementsAre(6, 15));
  EXPECT_EQ(Sum(I({INT64_MAX, 1})).Item<int64_t>(), kLowest);
  // In float, 2^24 + 1 is 2^24.
  std::vector<float> ones(1 << 10, 1);
  ones[0] = 0x1p24f;
  EXPECT_EQ(Sum(F(ones, {1 << 10})).Item<float>(), 0x1p24f + 1024);  // 2^24 + 1023, to even
}

TEST(ReferenceReduction, ProductsAndMeans) {
  EXPECT_EQ(Prod(D({2, -3, 0.5})).Item<double>(), -3);
  EXPECT_EQ(Prod(I({int64_t{1} << 62, 2, 3})).Item<int64_t>(), kLowest);  // 3 * 2^63 modulo 2^64
  EXPECT_EQ(Prod(Cast(I({-2, 3, 100}), DType::kInt8)).Item<int64_t>(), -600);
  EXPECT_EQ(Mean(D({1, 2, 6})).Item<double>(), 3);
  EXPECT_EQ(Mean(Cast(I({1, 0, 0, 1}), DType::kBool)).Item<double>(), 0.5);
}

TEST(ReferenceReduction, VarianceAndNorms) {
  // Deviations -3, -1, 1, 3 from 4.
  EXPECT_EQ(Variance(D({1, 3, 5, 7})).Item<double>(), 5);
  EXPECT_EQ(Variance(D({1, 3, 5, 7}), {}, 1).Item<double>(), 20.0 / 3);
  // A mean far larger than the deviations: sums of squares would lose them all.
  EXPECT_EQ(Variance(D({1e9 + 1, 1e9 + 3, 1e9 + 5, 1e9 + 7})).Item<double>(), 5);
  EXPECT_EQ(Norm1(D({-1, 2, -3})).Item<double>(), 6);
  EXPECT_EQ(Norm2(D({-2, 3, -6})).Item<double>(), 7);
  EXPECT_EQ(NormInf(D({-7, 3, 6})).Item<double>(), 7);
  EXPECT_EQ(NormInf(Cast(I({-128, 3}), DType::kInt8)).Item<double>(), 128);
  EXPECT_EQ(NormInf(D({-kInf, kNaN, kInf})).ToVector<double>()[0] != 0, true);
  EXPECT_TRUE(std::isnan(NormInf(D({-kInf, kNaN, kInf})).Item<double>()));
}

TEST(ReferenceReduction, LogSumExp) {
  EXPECT_DOUBLE_EQ(LogSumExp(D({0, 0, 0, 0})).Item<double>(), std::log(4.0));
  EXPECT_DOUBLE_EQ(LogSumExp(D({1, 2, 3})).Item<double>(), 3.4076059644443806);
  EXPECT_DOUBLE_EQ(LogSumExp(D({-1e4, -1e4})).Item<double>(), -1e4 + std::log(2.0));
  EXPECT_EQ(LogSumExp(D({-kInf, 7})).Item<double>(), 7);
}

TEST(ReferenceReduction, LargestAndSmallest) {
  EXPECT_EQ(Max(I({4, 9, 9})).Item<int64_t>(), 9);
  EXPECT_EQ(Min(I({4, kLowest, 9})).Item<int64_t>(), kLowest);
  EXPECT_EQ(Max(D({-kInf, -kInf})).Item<double>(), -kInf);
  EXPECT_TRUE(std::isnan(Max(D({1, kNaN, kInf})).Item<double>()));
  EXPECT_TRUE(std::isnan(Min(D({1, kNaN, -kInf})).Item<double>()));
  EXPECT_EQ(Max(Cast(I({200, 3}), DType::kUInt8)).Item<uint8_t>(), 200);
  const NDArray x = F({1, 3, 3, -INFINITY, -INFINITY, -INFINITY, 2, NAN, INFINITY}, {3, 3});
  EXPECT_THAT(Ints(ArgMax(x)), ElementsAre(1, 0, 1));
  EXPECT_THAT(Ints(ArgMin(x)), ElementsAre(0, 0, 1));
  EXPECT_THAT(Ints(ArgMax(x, 0)), ElementsAre(2, 2, 2));
  EXPECT_EQ(ArgMax(I({4, 9, 9})).Item<int64_t>(), 1);
  EXPECT_EQ(ArgMin(D({kNaN, -kInf, kNaN})).Item<int64_t>(), 0);
}

TEST(ReferenceReduction, AnyAndAll) {
  EXPECT_TRUE(Any(I({0, 0, -1})).Item<bool>());
  EXPECT_FALSE(Any(D({0, -0.0})).Item<bool>());
  EXPECT_TRUE(All(D({kNaN, 1e-300})).Item<bool>());
  EXPECT_FALSE(All(Cast(I({1, 0}), DType::kBool)).Item<bool>());
}

// Each element added to the output that its index, without the reduced axes, belongs to.
TEST(ReferenceReduction, EverySetOfAxesAgainstScatteredAdditions) {
  std::mt19937_64 random(5);
  std::printf("seed 5\n");
  const Shape shape = {2, 3, 1, 4};
  std::vector<double> values(24);
  for (double& value : values) value = static_cast<double>(random() % 1000) - 500;
  const NDArray x = FromValues(absl::MakeConstSpan(values), shape);
  for (uint32_t mask = 1; mask < 16; ++mask) {
    std::vector<int> axes;
    int64_t size = 1;
    for (int i = 0; i < 4; ++i) {
      if ((mask >> i & 1) != 0) axes.push_back(i);
      if ((mask >> i & 1) == 0) size *= shape[i];
    }
    std::vector<double> sums(size, 0), largest(size, -kInf);
    for (int64_t n = 0; n < 24; ++n) {
      const int64_t index[] = {n / 12, n / 4 % 3, 0, n % 4};
      int64_t at = 0;
      for (int i = 0; i < 4; ++i) {
        if ((mask >> i & 1) == 0) at = at * shape[i] + index[i];
      }
      sums[at] += values[n];
      largest[at] = std::fmax(largest[at], values[n]);
    }
    EXPECT_EQ(Sum(x, axes).ToVector<double>(), sums) << "axes " << mask;
    EXPECT_EQ(Max(x, axes).ToVector<double>(), largest) << "axes " << mask;
    for (double& sum : sums) sum /= static_cast<double>(24 / size);
    EXPECT_THAT(Mean(x, axes).ToVector<double>(), Pointwise(DoubleNear(1e-12), sums));
  }
}

}  // namespace
}  // namespace tidepool
