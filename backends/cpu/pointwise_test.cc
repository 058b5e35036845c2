// Elementwise calls on large and oddly laid out operands, against plain loops: tiles, threads,
// results written past the caches, broadcasting along rows, columns and both.
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

class PointwiseTest : public ::testing::Test {
 protected:
  PointwiseTest() { SetThreadCount(3); }
  ~PointwiseTest() override { SetThreadCount(1); }
  NDArray Random(const Shape& shape) { return RandomUniform(shape, -2, 2, 5, ++stream_); }

  uint64_t stream_ = 0;
};

// Element `index` (row-major in `shape`) of an array that broadcasts to it.
float Element(const NDArray& x, const Shape& shape, int64_t index) {
  int64_t offset = 0;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const int own = axis - (shape.rank() - x.rank());
    const int64_t at = index % shape[axis];
    index /= shape[axis];
    if (own >= 0 && x.dim(own) != 1) offset += at * x.strides()[own];
  }
  return reinterpret_cast<const float*>(x.raw_data())[offset];
}

void ExpectSum(const NDArray& x, const NDArray& y, const NDArray& z) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < z.NumElements(); ++i) {
    wrong += Element(z, z.shape(), i) != Element(x, z.shape(), i) + Element(y, z.shape(), i);
  }
  EXPECT_EQ(wrong, 0) << x.shape().ToString() << " + " << y.shape().ToString();
}

TEST_F(PointwiseTest, LayoutsOfTwoOperands) {
  const std::vector<NDArray> operands = {
      Random({70, 130, 90}),
      Random({90, 130, 70}).Transpose(),
      Random({70, 90, 130}).Index(0, 3).Transpose(),  // [130, 90]
      Random({70, 130, 180}).Slice(2, 0, 90),
      Random({71, 131, 90, 2}).Slice(0, 1, 71).Slice(1, 0, 130).Index(3, 1),  // every second
      Random({90}),
      Random({130, 1}),
      Random({70, 1, 90}),
      Random({70, 1, 1}),
      Random({1}),
      Random({}),
  };
  for (const NDArray& x : operands) {
    for (const NDArray& y : operands) ExpectSum(x, y, x + y);
  }
}

TEST_F(PointwiseTest, ShortRows) {
  for (const int64_t columns : {1, 2, 3, 7, 31, 32, 33}) {
    const NDArray x = Random({3000, columns});
    for (const NDArray& y :
         {Random({columns}), Random({3000, 1}), Random({columns, 3000}).Transpose(),
          Random({3000, columns + 2}).Slice(1, 1, columns + 1)}) {
      ExpectSum(x, y, x + y);
      ExpectSum(y, x, y + x);
    }
  }
}

TEST_F(PointwiseTest, ResultsOfAnyLayout) {
  for (NDArray z : {Zeros({200, 300}).Transpose(), Zeros({300, 200, 2}).Index(2, 1),
                    Zeros({300, 250}).Slice(1, 7, 207)}) {
    const NDArray x = Random({300, 200}), y = Random({200, 300}).Transpose();
    AddInto(x, y, z);
    ExpectSum(x, y, z);
    const NDArray before = z.Dup();
    AddInto(z, y, z);  // in place
    ExpectSum(before, y, z);
  }
}

TEST_F(PointwiseTest, ResultsLargerThanTheCaches) {
  const int64_t count = (9 << 20) + 13;  // 36 MiB and a bit
  const NDArray base = Random({count + 3});
  const NDArray x = base.Slice(0, 3, count + 3), y = Random({count});
  NDArray z = Zeros({count + 5}).Slice(0, 5, count + 5);
  AddInto(x, y, z);
  ExpectSum(x, y, z);
  NDArray half = Zeros({2 * count}, DType::kFloat16);
  CopyInto(Full({2 * count}, 1.5), half);
  EXPECT_EQ(half.At<Float16>({2 * count - 1}), 1.5f);
  const NDArray flags = Less(half, half);
  EXPECT_FALSE(flags.At<bool>({2 * count - 1}));
}

TEST_F(PointwiseTest, WhereOfThreeLayouts) {
  const NDArray x = Random({257, 300}), y = Random({300, 257}).Transpose(), row = Random({300});
  const NDArray condition = Greater(x, row);
  const NDArray z = Where(condition, y, row);
  int64_t wrong = 0;
  for (int64_t i = 0; i < z.NumElements(); ++i) {
    const bool yes = Element(x, z.shape(), i) > Element(row, z.shape(), i);
    wrong += Element(z, z.shape(), i) != Element(yes ? y : row, z.shape(), i);
  }
  EXPECT_EQ(wrong, 0);
}

// That the array layer's own are right is for dtype_test.
TEST_F(PointwiseTest, IntegersBeyondDoublesAreRoundedToSixteenBitsOnce) {
  constexpr int64_t kMiddle = 0x4040000000000000;
  std::vector<int64_t> wholes;
  for (int64_t i = 0; i < 50; ++i) {
    for (const int64_t value : {kMiddle + (int64_t{i} << 55), kMiddle >> (i % 20)})
      wholes.insert(wholes.end(), {value - 1, value, value + 1, -value - 1, -value, 1 - value});
  }
  const NDArray x = FromValues(absl::MakeConstSpan(wholes), {static_cast<int64_t>(wholes.size())});
  for (const DType from : {DType::kInt64, DType::kUInt64}) {
    const NDArray of = Cast(x, from), found = Cast(of, DType::kBFloat16);
    for (size_t i = 0; i < wholes.size(); ++i) {
      const auto expected = from == DType::kInt64
                                ? ConvertElement<BFloat16>(wholes[i])
                                : ConvertElement<BFloat16>(static_cast<uint64_t>(wholes[i]));
      EXPECT_EQ(found.data<BFloat16>()[i].bits, expected.bits) << wholes[i];
    }
  }
}

// Every pair of types, dense, strided and transposed, against the array layer's own copy.
// Truncation shows it where product and sum are rounded together: 0.1 * 35 - 2.5 is 1, or less.
TEST_F(PointwiseTest, IntegersAreScaledAndShiftedWithTwoRoundings) {
  constexpr int64_t kCount = 5000;
  for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16,
                            DType::kInt32, DType::kUInt32, DType::kInt64, DType::kUInt64}) {
    const NDArray from = RandomIntegers({kCount}, 30, 120, 7, ++stream_);  // no result is negative
    for (const auto& [scale, shift] : {std::pair(0.1, -2.5), {0.7, 0.3}, {0.3, 0.1}, {0.9, -0.7}}) {
      const NDArray z = Cast(ScaleShift(Cast(from, dtype), scale, shift), DType::kInt64);
      int64_t wrong = 0;
      for (int64_t i = 0; i < kCount; ++i) {
        volatile double product = scale * static_cast<double>(from.data<int64_t>()[i]);
        wrong += z.data<int64_t>()[i] != static_cast<int64_t>(product + shift);
      }
      EXPECT_EQ(wrong, 0) << DTypeName(dtype) << " " << scale << " " << shift;
    }
  }
}

TEST_F(PointwiseTest, Conversions) {
  std::mt19937 random(7);
  std::vector<double> values(64 * 70);
  for (double& value : values) {
    value = std::ldexp(static_cast<int32_t>(random()), static_cast<int>(random() % 80) - 60);
  }
  values[3] = NAN;
  values[5] = INFINITY;
  values[900] = -1e30;
  values[2000] = 3e9;
  const NDArray numbers = FromValues(absl::MakeConstSpan(values), {64, 70});
  for (int from = 0; from < kDTypes; ++from) {
    for (int to = 0; to < kDTypes; ++to) {
      const NDArray x = Cast(numbers, static_cast<DType>(from));
      // In range for 32 bits as well, where another loop runs.
      const NDArray small = Cast(ScaleShift(RandomUniform({64, 70}, -90, 90, 3), 1, 0), x.dtype());
      for (const NDArray& view : {x, x.Transpose(), x.Slice(1, 1, 40), small}) {
        NDArray z = Empty(view.shape(), static_cast<DType>(to)), expected = z.Dup();
        CopyInto(view, z);
        {
          ScopedProvider builtin("builtin");
          CopyInto(view, expected);
        }
        const auto* a = reinterpret_cast<const uint8_t*>(z.raw_data());
        const auto* b = reinterpret_cast<const uint8_t*>(expected.raw_data());
        int64_t wrong = 0;
        const auto width = static_cast<int64_t>(DTypeBytes(z.dtype()));
        for (int64_t i = 0; i < z.NumElements(); ++i) {
          const bool both_nan = VisitDType(z.dtype(), [&](auto t) {
            using T = decltype(t);
            const T p = reinterpret_cast<const T*>(a)[i], q = reinterpret_cast<const T*>(b)[i];
            return p != p && q != q;
          });
          wrong += !both_nan && !std::equal(a + i * width, a + (i + 1) * width, b + i * width);
        }
        EXPECT_EQ(wrong, 0) << DTypeName(x.dtype()) << " to " << DTypeName(z.dtype());
      }
    }
  }
}

}  // namespace
}  // namespace tidepool
