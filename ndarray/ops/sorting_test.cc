// Order along an axis: values, stability, NaN, views, refusals; cumulative sums and their gradient.
#include "tidepool/ndarray/ops/sorting.h"

#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/testing/gradient_check.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsNan;

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}
NDArray F(std::vector<float> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
NDArray I(std::vector<int64_t> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }
std::vector<int64_t> Ints(const NDArray& x) { return x.ToVector<int64_t>(); }

TEST(Sort, NaNLastAndStable) {
  const NDArray x = F({3, NAN, -INFINITY, 3, -0.0f, 0, INFINITY, NAN, -1});
  EXPECT_THAT(Values(Sort(x)), ElementsAre(-INFINITY, -1, 0, 0, 3, 3, INFINITY, IsNan(), IsNan()));
  EXPECT_THAT(Ints(ArgSort(x)), ElementsAre(2, 8, 4, 5, 0, 3, 6, 1, 7));
  EXPECT_THAT(Values(Sort(x, 0, true)),
              ElementsAre(IsNan(), IsNan(), INFINITY, 3, 3, 0, 0, -1, -INFINITY));
  EXPECT_THAT(Ints(ArgSort(x, 0, true)), ElementsAre(1, 7, 6, 0, 3, 4, 5, 8, 2));
}

// Equals to all who compare them.
TEST(Sort, ZerosOfBothSignsKeepTheirOrder) {
  const NDArray x = F({0, 1, -0.0f, -1, 0, -0.0f});
  for (const bool descending : {false, true}) {
    const NDArray sorted = Sort(x, 0, descending);
    std::vector<bool> signs;
    for (const float value : Values(sorted)) {
      if (value == 0) signs.push_back(std::signbit(value));
    }
    EXPECT_THAT(signs, ElementsAre(false, true, false, true)) << descending;
  }
}

TEST(Sort, AxesTypesAndPlaces) {
  const NDArray x = I({3, 1, 2, 0, 5, 4}).Reshape({2, 3});
  EXPECT_THAT(Ints(Sort(x)), ElementsAre(1, 2, 3, 0, 4, 5));
  EXPECT_THAT(Ints(Sort(x, 0)), ElementsAre(0, 1, 2, 3, 5, 4));
  EXPECT_THAT(Ints(ArgSort(x, 0)), ElementsAre(1, 0, 0, 0, 1, 1));
  EXPECT_THAT(Ints(Sort(x.Transpose(), 0)), ElementsAre(1, 0, 2, 4, 3, 5));
  EXPECT_THAT(Sort(Cast(I({1, 0, 1, 0}), DType::kBool)).ToVector<bool>(),
              ElementsAre(false, false, true, true));
  EXPECT_THAT(Sort(Cast(I({-1, 127, -128, 0}), DType::kInt8)).ToVector<int8_t>(),
              ElementsAre(-128, -1, 0, 127));
  NDArray y = F({2, 1, 3});
  SortInto(y, 0, false, y);
  EXPECT_THAT(Values(y), ElementsAre(1, 2, 3));
  EXPECT_THAT(Values(Sort(Zeros({0}))), IsEmpty());
  EXPECT_EQ(Refusal([] { Sort(Ones({})); }),
            "Op [sort]: axis -1 of an array of rank 0, which has none");
  EXPECT_EQ(Refusal([&] { SortInto(x, 0, false, y); }), "Op [sort]: Z is f32, expected i64");
}

TEST(TopK, LargestFirst) {
  const NDArray x = F({1, 5, 5, NAN, 2, NAN});
  const TopKResult best = TopK(x, 4);
  EXPECT_THAT(Values(best.values), ElementsAre(IsNan(), IsNan(), 5, 5));
  EXPECT_THAT(Ints(best.places), ElementsAre(3, 5, 1, 2));
  const TopKResult columns = TopK(I({3, 1, 2, 0, 5, 4}).Reshape({3, 2}), 2, 0);
  EXPECT_THAT(Ints(columns.values), ElementsAre(5, 4, 3, 1));
  EXPECT_THAT(Ints(columns.places), ElementsAre(2, 2, 0, 0));
  EXPECT_EQ(TopK(x, 0).values.shape(), (Shape{0}));
  NDArray values = Empty({2}), places = Empty({2}, DType::kInt64);
  TopKInto(F({1, 3, 2}), 0, values, places);
  EXPECT_THAT(Values(values), ElementsAre(3, 2));
  EXPECT_EQ(Refusal([&] { TopK(x, 7); }),
            "Op [top_k]: k is 7, expected 0 to 6, the size of axis 0");
  EXPECT_EQ(Refusal([&] { TopK(x, -1); }),
            "Op [top_k]: k is -1, expected 0 to 6, the size of axis 0");
  NDArray other = Empty({3}, DType::kInt64);
  EXPECT_EQ(Refusal([&] { TopKInto(x, 0, values, other); }),
            "Op [top_k]: places has shape [3], expected [2]");
}

// Against counting how many come before each element.
TEST(ArgSort, RandomLanesAgainstCounting) {
  std::mt19937_64 random(9);
  std::printf("seed 9\n");
  for (const int64_t n : {1, 2, 39, 41, 300, 1000}) {
    std::vector<int64_t> values(n), expected(n);
    for (int64_t& value : values) value = static_cast<int64_t>(random() % 200) - 100;
    for (int64_t i = 0; i < n; ++i) {
      int64_t before = 0;
      for (int64_t j = 0; j < n; ++j) {
        before += values[j] < values[i] || (values[j] == values[i] && j < i);
      }
      expected[before] = i;
    }
    EXPECT_EQ(Ints(ArgSort(I(values))), expected) << n;
  }
}

TEST(CumSum, DirectionsAndTypes) {
  const NDArray x = Arange(1, 7).Reshape({2, 3});
  EXPECT_THAT(Values(CumSum(x)), ElementsAre(1, 3, 6, 4, 9, 15));
  EXPECT_THAT(Values(CumSum(x, 0)), ElementsAre(1, 2, 3, 5, 7, 9));
  EXPECT_THAT(Values(CumSum(x, 1, true)), ElementsAre(6, 5, 3, 15, 11, 6));
  EXPECT_THAT(Values(CumSum(x, 1, false, true)), ElementsAre(0, 1, 3, 0, 4, 9));
  EXPECT_THAT(Values(CumSum(x, 1, true, true)), ElementsAre(5, 3, 0, 11, 6, 0));
  EXPECT_THAT(Ints(CumSum(Full({3}, 100, DType::kInt8))), ElementsAre(100, 200, 300));
  EXPECT_THAT(Ints(CumSum(Ones({3}, DType::kBool))), ElementsAre(1, 2, 3));
  // Added in float it would stay at 2^24.
  EXPECT_EQ(Values(CumSum(F({0x1p24f, 1, 1})))[2], 0x1p24f + 2);
  NDArray y = F({1, 2, 3});
  CumSumInto(y, 0, false, false, y);
  EXPECT_THAT(Values(y), ElementsAre(1, 3, 6));
  NDArray bytes = Ones({3}, DType::kInt8);
  EXPECT_EQ(Refusal([&] { CumSumInto(bytes, 0, false, false, bytes); }),
            "Op [cumsum]: Z is i8, expected i64");
}

TEST(CumSum, Gradient) {
  NDArray x = RandomUniform({3, 5}, -1, 1, 3);
  const NDArray dz = RandomUniform({3, 5}, -1, 1, 4);
  for (const bool reverse : {false, true}) {
    for (const bool exclusive : {false, true}) {
      EXPECT_EQ(GradientProblem([&] { return WeightedSum(CumSum(x, 0, reverse, exclusive), dz); },
                                x, CumSum(dz, 0, !reverse, exclusive)),
                "");
    }
  }
}

}  // namespace
}  // namespace tidepool
