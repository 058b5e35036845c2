// Random arrays and dropout by the functions users call: distributions, what they depend on, types,
// refusals, the gradient of dropout.
#include "tidepool/ndarray/ops/random.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/testing/gradient_check.h"

namespace tidepool {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr DType kF16 = DType::kFloat16, kF64 = DType::kFloat64, kI32 = DType::kInt32;

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}
std::vector<double> Numbers(const NDArray& x) { return Cast(x, kF64).ToVector<double>(); }

TEST(RandomTypes, UniformAndNormalOfEachFloatType) {
  const std::vector<double> floats = Numbers(RandomUniform({4000}, -1, 3, 5, 2));
  for (const DType dtype : {DType::kFloat32, kF64, kF16, DType::kBFloat16}) {
    const NDArray x = RandomUniform({4000}, -1, 3, dtype, 5, 2);
    ASSERT_EQ(x.dtype(), dtype);
    const std::vector<double> values = Numbers(x);
    EXPECT_GE(*std::min_element(values.begin(), values.end()), -1);
    EXPECT_LT(*std::max_element(values.begin(), values.end()), 3);
    // Standard errors 0.018 and, of the variance 16/12, 0.019.
    EXPECT_NEAR(Mean(Cast(x, kF64)).Item<double>(), 1, 0.08) << DTypeName(dtype);
    EXPECT_NEAR(Variance(Cast(x, kF64)).Item<double>(), 16.0 / 12, 0.08) << DTypeName(dtype);
    const NDArray normal = Cast(RandomNormal({4000}, 2, 3, dtype, 5, 2), kF64);
    EXPECT_NEAR(Mean(normal).Item<double>(), 2, 0.2) << DTypeName(dtype);
    EXPECT_NEAR(Variance(normal).Item<double>(), 9, 0.9) << DTypeName(dtype);
    // 16-bit numbers are the f32 numbers, rounded.
    const double ulp = dtype == kF16 ? 0x1p-10 : 0x1p-7;
    for (size_t i = 0; DTypeBytes(dtype) == 2 && i < values.size(); ++i) {
      ASSERT_NEAR(values[i], floats[i], ulp * std::max(1e-3, std::abs(floats[i])));
    }
  }
  EXPECT_EQ(Refusal([] { RandomUniform({2}, 0, 1, kI32, 1); }),
            "Op [random_uniform]: type i32, expected a float type");
  EXPECT_EQ(
      Refusal([] { RandomUniform({2}, -60000, 60000, kF16, 1); }),
      "Op [random_uniform]: range [-60000, 60000), expected ends in order and a width that f16 "
      "holds");
}

TEST(Bernoulli, FrequencyAndTypes) {
  const NDArray x = RandomBernoulli({100000}, 0.3, 7);
  EXPECT_NEAR(Mean(x).Item<double>(), 0.3, 0.006);  // standard error 0.0014
  EXPECT_EQ(Numbers(RandomBernoulli({100000}, 0.3, 7, 0, kF16)), Numbers(x));
  EXPECT_NE(Numbers(RandomBernoulli({100000}, 0.3, 7, 1)), Numbers(x));
  EXPECT_THAT(Numbers(RandomBernoulli({50}, 1, 1, 0, DType::kUInt8)), Each(1));
  EXPECT_THAT(Numbers(RandomBernoulli({50}, 0, 1)), Each(0));
  EXPECT_EQ(Refusal([] { RandomBernoulli({2}, 1.5, 1); }),
            "Op [random_bernoulli]: probability 1.5, expected 0 to 1");
  EXPECT_EQ(Refusal([] { RandomBernoulli({2}, 0.5, 1, 0, kI32); }),
            "Op [random_bernoulli]: type i32, expected bool, u8 or a float type");
}

TEST(RandomIntegers, EachNumberAboutAsOften) {
  for (const DType dtype : {kI32, DType::kInt64}) {
    std::vector<int> counts(7);
    for (const double value : Numbers(RandomIntegers({70000}, -3, 4, 11, 0, dtype))) {
      ASSERT_TRUE(value >= -3 && value < 4);
      ++counts[static_cast<size_t>(value + 3)];
    }
    double chi2 = 0;
    for (const int count : counts) chi2 += (count - 1e4) * (count - 1e4) / 1e4;
    EXPECT_LT(chi2, 22.5);  // 6 degrees of freedom: once in a thousand seeds
  }
  EXPECT_THAT(RandomIntegers({9}, 5, 6, 1).ToVector<int64_t>(), Each(5));
  const NDArray wide = RandomIntegers({1000}, INT64_MIN, INT64_MAX, 2);
  EXPECT_LT(Min(wide).Item<int64_t>(), INT64_MIN / 100 * 99);
  EXPECT_GT(Max(wide).Item<int64_t>(), INT64_MAX / 100 * 99);
  EXPECT_EQ(Refusal([] { RandomIntegers({2}, 3, 3, 1); }),
            "Op [random_integers]: [3, 3) of i64, expected at least one number, all of the type");
  EXPECT_EQ(
      Refusal([] { RandomIntegers({2}, 0, int64_t{1} << 32, 1, 0, kI32); }),
      "Op [random_integers]: [0, 4294967296) of i32, expected at least one number, all of the "
      "type");
}

TEST(Permutation, EachNumberOnceInAnyPlace) {
  const NDArray p = RandomPermutation(1000, 3);
  std::vector<int64_t> values = p.ToVector<int64_t>();
  EXPECT_FALSE(std::is_sorted(values.begin(), values.end()));
  std::sort(values.begin(), values.end());
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(values[i], i);
  // All six orders of three, about as often.
  std::vector<int> counts(27);
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const std::vector<int32_t> order = RandomPermutation(3, seed, 0, kI32).ToVector<int32_t>();
    ++counts[order[0] * 9 + order[1] * 3 + order[2]];
  }
  int orders = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++orders;
    EXPECT_NEAR(count, 1000, 130);  // standard deviation 29
  }
  EXPECT_EQ(orders, 6);
  EXPECT_THAT(RandomPermutation(0, 1).ToVector<int64_t>(), IsEmpty());
  EXPECT_EQ(Refusal([] { RandomPermutation(-1, 1); }),
            "Op [random_permutation]: -1 numbers of i64, expected 0 to what the type holds");
  const NDArray x = Arange(0, 10).Reshape({5, 2});
  const NDArray shuffled = Shuffle(x, 4);
  EXPECT_EQ(Numbers(shuffled - Repeat(shuffled.Slice(1, 0, 1), 2, 1)),
            (std::vector<double>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));  // rows stay whole
  EXPECT_EQ(Sum(shuffled).Item<float>(), 45);
}

TEST(Dropout, KeepsAndScales) {
  const NDArray x = Full({20000}, 3);
  const NDArray z = Dropout(x, 0.25, 9, 1);
  int64_t kept = 0;
  for (const float value : z.ToVector<float>()) {
    ASSERT_TRUE(value == 0 || value == 4) << value;
    kept += value != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / 20000, 0.75, 0.015);  // standard error 0.003
  EXPECT_EQ(Numbers(Dropout(x, 0, 9, 1)), Numbers(x));
  // What is dropped is 0, even if it was not a number; the mask does not depend on the values.
  const NDArray none = Dropout(Full({2, 3}, NAN), 0.5, 1, 1),
                ones = Dropout(Ones({2, 3}), 0.5, 1, 1);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(none.Reshape({6}).At<float>({i}) == 0, ones.Reshape({6}).At<float>({i}) == 0);
  }
  NDArray y = x.Dup();
  DropoutInto(y, 0.25, 9, 1, y);
  EXPECT_EQ(Numbers(y), Numbers(z));
  EXPECT_EQ(Refusal([&] { Dropout(x, 1, 1, 1); }),
            "Op [dropout]: rate is 1, expected 0 or more, below 1");
  EXPECT_EQ(Refusal([&] { Dropout(Ones({2}, kI32), 0.5, 1, 1); }),
            "Op [dropout]: X is i32, expected a float type");
}

TEST(Dropout, Gradient) {
  NDArray x = RandomUniform({5, 8}, -1, 1, 1);
  const NDArray dz = RandomUniform({5, 8}, -1, 1, 2);
  EXPECT_EQ(GradientProblem([&] { return WeightedSum(Dropout(x, 0.4, 6, 3), dz); }, x,
                            DropoutGrad(dz, 0.4, 6, 3)),
            "");
}

TEST(Creation, ValuesThatAreWrittenDown) {
  const NDArray floats = FromValues({0.5f, 1.5f, -2.0f}, {3}),
                doubles = FromValues({0.5, 1.5}, {2, 1});
  EXPECT_EQ(floats.dtype(), DType::kFloat32);
  EXPECT_EQ(floats.At<float>({2}), -2.0f);
  EXPECT_EQ(doubles.dtype(), DType::kFloat64);
  EXPECT_EQ(doubles.shape(), Shape({2, 1}));
  EXPECT_EQ(FromValues<float>({1, 2}, {2}).At<float>({1}), 2.0f);
  EXPECT_EQ(FromValues<int64_t>({int64_t{1} << 62}, {1}).At<int64_t>({0}), int64_t{1} << 62);
  EXPECT_EQ(FromValues({true, false}, {2}).dtype(), DType::kBool);
  EXPECT_EQ(FromValues(std::initializer_list<float>{}, {0}).NumElements(), 0);
  EXPECT_THROW(FromValues({1.0f, 2.0f}, {3}), Error);
}

TEST(Creation, LinspaceEyeAndArange) {
  EXPECT_THAT(Numbers(Linspace(0, 1, 5)), ElementsAre(0, 0.25, 0.5, 0.75, 1));
  EXPECT_THAT(Numbers(Linspace(0, 1, 4, kF64)), ElementsAre(0, 1 / 3.0, 2 / 3.0, 1));
  EXPECT_THAT(Numbers(Linspace(-1, 2, 3, kI32)), ElementsAre(-1, 0, 2));
  EXPECT_THAT(Numbers(Linspace(-2, 0, 4, kI32)), ElementsAre(-2, -2, -1, 0));
  EXPECT_THAT(Numbers(Linspace(7, 9, 1)), ElementsAre(7));
  EXPECT_THAT(Numbers(Linspace(7, 9, 0)), IsEmpty());
  EXPECT_EQ(Refusal([] { Linspace(0, INFINITY, 3); }),
            "linspace: 3 numbers from 0 to inf, expected 0 or more and a finite width");
  EXPECT_THAT(Numbers(Eye(2, 3)), ElementsAre(1, 0, 0, 0, 1, 0));
  EXPECT_THAT(Numbers(Eye(2, 3, 1, kF16)), ElementsAre(0, 1, 0, 0, 0, 1));
  EXPECT_THAT(Numbers(Eye(3, 2, -1, DType::kBool)), ElementsAre(0, 0, 1, 0, 0, 1));
  EXPECT_THAT(Numbers(Eye(2, 2, INT64_MIN)), Each(0));
  EXPECT_THAT(Numbers(Eye(2, 2, INT64_MAX)), Each(0));
  EXPECT_THAT(Numbers(Eye(0, 3)), IsEmpty());
  // i64 beyond 2^53 are exact.
  const NDArray large = Arange(0x1p53, 0x1p53 + 4, 1, DType::kInt64);
  EXPECT_EQ(large.At<int64_t>({1}), (int64_t{1} << 53) + 1);
  EXPECT_THAT(Numbers(Arange(5, 0, -2, DType::kInt64)), ElementsAre(5, 3, 1));
  EXPECT_THAT(Numbers(Arange(0, 1, 0.25, kF16)), ElementsAre(0, 0.25, 0.5, 0.75));
  EXPECT_THAT(Numbers(Arange(3, 3)), IsEmpty());
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_THAT(Numbers(Ones({}, dtype)), ElementsAre(1)) << DTypeName(dtype);
    EXPECT_THAT(Numbers(Zeros({2}, dtype)), ElementsAre(0, 0)) << DTypeName(dtype);
    EXPECT_THAT(Numbers(Full({2, 0}, 1, dtype)), IsEmpty()) << DTypeName(dtype);
    EXPECT_THAT(Numbers(Arange(0, 2, 1, dtype)), ElementsAre(0, 1)) << DTypeName(dtype);
  }
}

}  // namespace
}  // namespace tidepool
