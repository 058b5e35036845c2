#include "tidepool/ndarray/kernel/random_numbers.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

TEST(RandomNumbers, UniformDoublesAreHalfOpen) {
  const UniformOf<double> unit(0, 1);
  EXPECT_EQ(unit(0, 0), 0);
  EXPECT_EQ(unit(0, 63), 0);  // the low six bits are not used
  EXPECT_EQ(unit(0x80000000u, 0), 0.5);
  EXPECT_EQ(unit(0, 64), 0x1p-53);
  EXPECT_EQ(unit(UINT32_MAX, UINT32_MAX), 1 - 0x1p-53);
  EXPECT_EQ(UniformOf<double>(1, 2)(UINT32_MAX, UINT32_MAX), std::nextafter(2.0, 1.0));
  EXPECT_EQ(UniformOf<double>(3, 3)(UINT32_MAX, UINT32_MAX), 3);
}

template <typename T>
float Top(double low, double high) {
  return UniformOf<T>(low, high)(UINT32_MAX);
}

TEST(RandomNumbers, UniformOf16BitsStaysBelowHigh) {
  EXPECT_EQ(Top<Float16>(0, 1), 1 - 0x1p-11f);
  EXPECT_EQ(Top<BFloat16>(0, 1), 1 - 0x1p-8f);
  EXPECT_EQ(Top<Float16>(-1, 0), -0x1p-24f);  // the smallest denormal
  EXPECT_EQ(Top<Float16>(-2, -1), -1 - 0x1p-10f);
  EXPECT_EQ(Top<BFloat16>(5, 5), 5);
  EXPECT_EQ(static_cast<float>(UniformOf<Float16>(-1, 1)(0)), -1);
  EXPECT_EQ(static_cast<float>(UniformOf<Float16>(-1, 1)(0x80000000u)), 0);
}

TEST(RandomNumbers, Thresholds) {
  EXPECT_EQ(BernoulliThreshold(0), 0u);
  EXPECT_EQ(BernoulliThreshold(1), uint64_t{1} << 32);
  EXPECT_EQ(BernoulliThreshold(0.5), uint64_t{1} << 31);
  EXPECT_EQ(BernoulliThreshold(0x1p-33 + 0x1p-40), 1u);
}

TEST(RandomNumbers, BelowCoversEachNumber) {
  EXPECT_EQ(Below(10, 0), 0u);
  EXPECT_EQ(Below(10, UINT64_MAX), 9u);
  EXPECT_EQ(Below(10, UINT64_MAX / 10 * 3 + 3), 3u);
  EXPECT_EQ(Below(10, UINT64_MAX / 10 * 3), 2u);
  EXPECT_EQ(Below(UINT64_MAX, UINT64_MAX), UINT64_MAX - 1);
  // Of 128 bits: the carry of the low half counts.
  EXPECT_EQ(Below(10, UINT64_MAX, UINT64_MAX), 9u);
  EXPECT_EQ(Below(3, 0x5555555555555555u, 0x5555555555555555u), 0u);
  EXPECT_EQ(Below(3, 0x5555555555555555u, 0x5555555555555556u), 1u);
}

TEST(RandomNumbers, NormalsOf53BitsAreBoxMuller) {
  double pair[2];
  NormalPairOf53Bits({{UINT32_MAX, UINT32_MAX, 0, 0}}, 5, 2, pair);  // u = 1: radius 0
  EXPECT_EQ(pair[0], 5);
  EXPECT_EQ(pair[1], 5);
  NormalPairOf53Bits({{0x7fffffffu, UINT32_MAX, 0x40000000u, 0}}, 0, 1, pair);  // a quarter turn
  EXPECT_NEAR(pair[0], 0, 1e-15);
  EXPECT_DOUBLE_EQ(pair[1], std::sqrt(2 * std::log(2.0)));
  NormalPairOf53Bits({{0, 0, 0, 0}}, 0, 1, pair);  // the largest there is
  EXPECT_DOUBLE_EQ(pair[0], std::sqrt(2 * 53 * std::log(2.0)));
}

TEST(RandomNumbers, NormalsHaveTheirMoments) {
  double sum = 0, squares = 0, fourths = 0;
  constexpr int kPairs = 100000;
  for (int block = 0; block < kPairs; ++block) {
    double pair[2];
    NormalPairOf53Bits(Philox(3, 9, block), 0, 1, pair);
    for (const double value : pair) {
      sum += value;
      squares += value * value;
      fourths += value * value * value * value;
    }
  }
  const double n = 2.0 * kPairs;  // standard errors: 0.0022, 0.0032, 0.022
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.014);
  EXPECT_NEAR(fourths / n, 3, 0.1);
}

}  // namespace
}  // namespace tidepool
