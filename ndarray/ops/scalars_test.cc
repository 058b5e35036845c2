// Numbers beside arrays: exact, of the array's type, refused where a type does not hold them. That results are
// NumPy's to the bit is for numpy_judge_test.
#include "tidepool/ndarray/scalar.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
constexpr int64_t kSmallest = std::numeric_limits<int64_t>::min();

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}

TEST(Scalar, KeepsIntegersOf64Bits) {
  EXPECT_EQ(Scalar(kLargest).To<int64_t>(), kLargest);
  EXPECT_EQ(Scalar(kSmallest).To<int64_t>(), kSmallest);
  EXPECT_EQ(Scalar(uint64_t{1} << 62).To<int64_t>(), int64_t{1} << 62);
  EXPECT_EQ(Scalar(uint8_t{200}).To<int8_t>(), -56);
  EXPECT_EQ(Scalar(Float16(1.5f)).To<double>(), 1.5);
  EXPECT_EQ(Scalar(2.75).To<int32_t>(), 2);
  EXPECT_EQ(Scalar('a').To<int32_t>(), 97);
  EXPECT_EQ(Scalar(U'a').To<int32_t>(), 97);
  // What only u64 holds.
  const Scalar large = UINT64_MAX - 5;
  EXPECT_EQ(large.To<uint64_t>(), UINT64_MAX - 5);
  EXPECT_EQ(large.To<int64_t>(), -6);
  EXPECT_EQ(large.To<double>(), 0x1p64);
  EXPECT_EQ(large.ToString(), "18446744073709551610");
  EXPECT_FALSE(large.FitsDouble());
  EXPECT_TRUE(Scalar(uint64_t{1} << 63).FitsDouble());
  EXPECT_TRUE(large.FitsIn(DType::kUInt64));
  EXPECT_FALSE(large.FitsIn(DType::kInt64));
  EXPECT_TRUE(Scalar(0x1p63).FitsIn(DType::kUInt64));
  EXPECT_FALSE(Scalar(-1).FitsIn(DType::kUInt64));
  EXPECT_EQ(Full({2}, UINT64_MAX, DType::kUInt64).ToString(),
            "[18446744073709551615, 18446744073709551615]");
  EXPECT_EQ((Full({}, 1, DType::kUInt64) + UINT64_MAX).Item<uint64_t>(), 0);
  EXPECT_TRUE((Full({}, 1, DType::kInt64) < large).Item<bool>());
}

TEST(Scalar, KnowsWhichTypesHoldIt) {
  EXPECT_TRUE(Scalar(127).FitsIn(DType::kInt8));
  EXPECT_FALSE(Scalar(128).FitsIn(DType::kInt8));
  EXPECT_TRUE(Scalar(128).FitsIn(DType::kUInt8));
  EXPECT_FALSE(Scalar(-1).FitsIn(DType::kUInt8));
  EXPECT_TRUE(Scalar(3.0).FitsIn(DType::kInt32));
  EXPECT_FALSE(Scalar(3.5).FitsIn(DType::kInt32));
  EXPECT_FALSE(Scalar(0x1p63).FitsIn(DType::kInt64));
  EXPECT_FALSE(Scalar(std::nan("")).FitsIn(DType::kInt64));
  EXPECT_TRUE(Scalar(true).FitsIn(DType::kBool));
  EXPECT_FALSE(Scalar(2).FitsIn(DType::kBool));
  EXPECT_TRUE(Scalar(1e300).FitsIn(DType::kFloat16));
  EXPECT_TRUE(Scalar(int64_t{1} << 60).FitsDouble());
  EXPECT_FALSE(Scalar((int64_t{1} << 53) + 1).FitsDouble());
  EXPECT_FALSE(Scalar(kLargest).FitsDouble());
  EXPECT_TRUE(Scalar(kSmallest).FitsDouble());
}

TEST(Scalar, FillsExactly) {
  EXPECT_EQ(Full({}, kLargest, DType::kInt64).Item<int64_t>(), kLargest);
  EXPECT_EQ(FromScalar(kLargest, DType::kInt64).Item<int64_t>(), kLargest);
  NDArray x = Zeros({2, 3}, DType::kInt64);
  NDArray column = x.Slice(1, 1, 2);
  FillInto((int64_t{1} << 53) + 1, column);
  EXPECT_THAT(x.ToVector<int64_t>(),
              ElementsAre(0, (int64_t{1} << 53) + 1, 0, 0, (int64_t{1} << 53) + 1, 0));
  EXPECT_THAT(Full({2}, true, DType::kBool).ToVector<bool>(), Each(true));
  EXPECT_EQ(Full({0, 3}, kLargest, DType::kInt64).NumElements(), 0);
}

TEST(Scalar, ArithmeticOf64BitsIsExact) {
  const std::vector<int64_t> values = {1, -2, 0};
  const NDArray x = FromValues(absl::MakeConstSpan(values), {3});
  EXPECT_THAT((x + kLargest).ToVector<int64_t>(), ElementsAre(kSmallest, kLargest - 2, kLargest));
  EXPECT_THAT((kLargest - x).ToVector<int64_t>(),
              ElementsAre(kLargest - 1, kSmallest + 1, kLargest));
  EXPECT_THAT((x * kLargest).ToVector<int64_t>(), ElementsAre(kLargest, 2, 0));
  EXPECT_THAT((x - kSmallest).ToVector<int64_t>(),
              ElementsAre(kSmallest + 1, kLargest - 1, kSmallest));
  NDArray y = x + 0;
  y += kLargest;
  y -= kLargest;
  EXPECT_THAT(y.ToVector<int64_t>(), ElementsAre(1, -2, 0));
  EXPECT_THAT((kLargest / Full({1}, 2, DType::kInt64)).ToVector<int64_t>(),
              ElementsAre(kLargest / 2));
}

// Multiplying by 1 / 49 gives 0.99999994 for 49.
// In double, truncated as conversions do: what does not fit is the smallest i64, whose last bits are zeros.
TEST(Scalar, RealsThatNoIntegerHoldsLeaveNothingOfSums) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                   kInf = std::numeric_limits<double>::infinity();
  for (const double real : {kNan, kInf, -kInf, 1e19, -1e19}) {
    for (const DType dtype : {DType::kInt8, DType::kUInt16, DType::kInt32}) {
      const NDArray x = Full({2}, 3, dtype);
      NDArray into = Full({2}, 3, dtype);
      into += real;
      for (const NDArray& z : {x + real, x - real, real - x, into, ScaleShift(x, 1, real)}) {
        EXPECT_EQ(Cast(z, DType::kInt64).ToVector<int64_t>(), std::vector<int64_t>({0, 0}))
            << real << DTypeName(dtype);
      }
    }
    EXPECT_EQ((Full({1}, 3, DType::kInt64) + real).Item<int64_t>(), INT64_MIN) << real;
  }
  EXPECT_EQ((Full({1}, 3, DType::kInt64) - -0x1p63).Item<int64_t>(), INT64_MIN + 3);  // exact
}

TEST(Scalar, QuotientsAreRoundedOnce) {
  NDArray x = Arange(1, 1000);
  const NDArray z = x / 49;
  x /= 49;
  for (int64_t i = 0; i < 999; ++i) {
    ASSERT_EQ(z.At<float>({i}), static_cast<float>(i + 1) / 49);
    ASSERT_EQ(x.At<float>({i}), static_cast<float>(i + 1) / 49);
  }
  EXPECT_EQ((Full({}, std::numeric_limits<float>::min()) / 0x1p-126).Item<float>(), 1);
  EXPECT_EQ((Full({}, 1) / 0x1p127).Item<float>(), 0x1p-127f);
  EXPECT_TRUE(std::isinf((Ones({}) / 0).Item<float>()));
  EXPECT_TRUE(std::signbit((Full({}, -0.0) / 2).Item<float>()));
  EXPECT_TRUE(std::signbit((Full({}, -0.0) * 2).Item<float>()));
}

// A product in long double would be rounded twice.
TEST(Scalar, ProductsAndSumsOfDoublesAreRoundedOnce) {
  std::mt19937_64 random(5);
  std::vector<double> values(20000);
  for (double& value : values)
    value = std::ldexp(static_cast<double>(random()), -static_cast<int>(random() % 80));
  const NDArray x = FromValues(absl::MakeConstSpan(values), {20000});
  for (const double number : {15983722062757.0, 1.0 / 3, 4.6709515262362542}) {
    const std::vector<double> products = (x * number).ToVector<double>(),
                              sums = (x + number).ToVector<double>();
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(products[i], values[i] * number);
      ASSERT_EQ(sums[i], values[i] + number);
    }
  }
}

TEST(Scalar, TakesTheArraysTypeOrIsRefused) {
  const NDArray x = Full({2}, 7, DType::kInt8);
  EXPECT_EQ((x * 2.5).dtype(), DType::kInt8);
  EXPECT_THAT((x * 2.5).ToVector<int8_t>(), Each(17));
  EXPECT_THAT(Maximum(x, 9).ToVector<int8_t>(), Each(9));
  EXPECT_THAT(Minimum(x, 9.0).ToVector<int8_t>(), Each(7));
  EXPECT_THAT(Power(x, 2).ToVector<int8_t>(), Each(49));
  EXPECT_THAT(Power(2, x).ToVector<int8_t>(), Each(-128));
  EXPECT_THAT(Remainder(x, 4).ToVector<int8_t>(), Each(3));
  EXPECT_THAT(Remainder(10, x).ToVector<int8_t>(), Each(3));
  EXPECT_EQ(Refusal([&] { Maximum(x, 300); }),
            "Op [maximum]: Y is 300, expected a whole number that i8 holds");
  EXPECT_EQ(Refusal([&] { x / 2.5; }),
            "Op [divide]: Y is 2.5, expected a whole number that i8 holds");
  EXPECT_EQ(Refusal([&] { 2.5 / x; }),
            "Op [divide]: X is 2.5, expected a whole number that i8 holds");
  EXPECT_THAT(Refusal([&] { x / 0; }), HasSubstr("integer division by zero"));
  EXPECT_THAT(Refusal([&] { 1 + Ones({1}, DType::kBool); }), HasSubstr("Op [add]"));
}

TEST(Scalar, ComparisonsOfIntegersAreWithItsVeryValue) {
  const std::vector<uint8_t> values = {0, 2, 3, 255};
  const NDArray x = FromValues(absl::MakeConstSpan(values), {4});
  EXPECT_THAT((x > 2.5).ToVector<bool>(), ElementsAre(false, false, true, true));
  EXPECT_THAT((x >= 2.5).ToVector<bool>(), ElementsAre(false, false, true, true));
  EXPECT_THAT((2.5 > x).ToVector<bool>(), ElementsAre(true, true, false, false));
  EXPECT_THAT((x < 300).ToVector<bool>(), Each(true));
  EXPECT_THAT((x < -1).ToVector<bool>(), Each(false));
  EXPECT_THAT((x == 2.5).ToVector<bool>(), Each(false));
  EXPECT_THAT((x != 258).ToVector<bool>(), Each(true));
  EXPECT_THAT((x == x).ToVector<bool>(), Each(true));
  EXPECT_THAT((x > std::nan("")).ToVector<bool>(), Each(false));
  EXPECT_THAT((Full({1}, kLargest, DType::kInt64) < 0x1p63).ToVector<bool>(), Each(true));
  EXPECT_THAT((Full({1}, kLargest, DType::kInt64) == kLargest - 1).ToVector<bool>(), Each(false));
}

TEST(Scalar, IsChosenByWhere) {
  const NDArray x = Arange(-2, 2);
  EXPECT_THAT(Where(x > 0, x, 0).ToVector<float>(), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(Where(x > 0, -1, x).ToVector<float>(), ElementsAre(-2, -1, 0, -1));
  EXPECT_THAT(Where(x > 0, 1, 0, DType::kUInt8).ToVector<uint8_t>(), ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(Refusal([&] { Where(x > 0, Cast(x, DType::kInt32), 0.5); }),
            "Op [where]: Y is 0.5, expected a whole number that i32 holds");
}

TEST(Scalar, AnErrorNamesTheOperatorThatWasCalled) {
  NDArray x = Ones({2});
  x.Close();
  const auto refusal = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refusal([&] { x + 1; }), HasSubstr("Op [add]"));
  EXPECT_THAT(refusal([&] { 1 - x; }), HasSubstr("Op [subtract]"));
  EXPECT_THAT(refusal([&] { x *= 2; }), HasSubstr("Op [multiply]"));
  EXPECT_THAT(refusal([&] { x / 3; }), HasSubstr("Op [divide]"));
  EXPECT_THAT(refusal([&] { x < 3; }), HasSubstr("Op [less]"));
  EXPECT_THAT(refusal([&] { Where(x, 3, x); }), HasSubstr("Op [where]"));
}

// A learned cycle serves the numbers as well.
TEST(Scalar, TakesNoMemoryOfTheSystemInALearnedCycle) {
  Workspace workspace("w", WorkspaceConfig::Training());
  NDArray z = Ones({100});
  int64_t before = 0;
  for (int i = 0; i < 5; ++i) {
    if (i == 3) before = MemoryTracker::Global().system_allocations();
    WorkspaceScope scope(workspace);
    const NDArray y = 1 / (2.0 * z - 0.5);
    z /= 3;
    z += Where(y > 0.25, y, 0);
  }
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
  EXPECT_EQ(workspace.stats().misses, 0);
}

}  // namespace
}  // namespace tidepool
