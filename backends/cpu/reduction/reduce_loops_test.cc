// The loops of each instruction set, of which the contract test sees only one, beside plain sums in double; and plans.
#include "tidepool/backends/cpu/reduction/reduce_loops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/instruction_set.h"
#include "tidepool/backends/cpu/reduction/reduce_plan.h"
#include "tidepool/ndarray/dtype.h"

namespace tidepool::cpu {
namespace {

#if defined(__x86_64__)
using Quad = __float128;
#else
using Quad = long double;  // of 128 bits on aarch64
#endif

using FindLoops = const ReduceLoops* (*)(ReduceKind, ElementKind);

std::vector<FindLoops> Tables() {
  std::vector<FindLoops> tables = {&PortableReduceLoops};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    tables.push_back(&Avx2ReduceLoops);
  }
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    tables.push_back(&Avx512ReduceLoops);
#endif
  return tables;
}

// [rows, columns] with a gap of `gap` elements between rows.
template <typename T>
struct Matrix {
  Matrix(int64_t rows, int64_t columns, int64_t gap, uint64_t seed)
      : rows(rows), columns(columns), stride(columns + gap), values(rows * stride) {
    std::mt19937_64 random(seed);
    for (T& value : values) {
      const double unit = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
      value = ConvertElement<T>(kIsFloat<T> ? unit : unit * 100);
    }
  }
  double At(int64_t row, int64_t column) const {
    return ConvertElement<double>(values[row * stride + column]);
  }
  int64_t rows, columns, stride;
  std::vector<T> values;
};

template <typename T>
void CheckSums(ElementKind element, double tolerance) {
  for (const FindLoops find : Tables()) {
    for (const auto& [rows, columns, gap] : {std::tuple<int, int, int>{1, 1, 0},
                                             {3, 31, 0},
                                             {5, 33, 2},
                                             {1000, 3, 0},
                                             {700, 130, 1},
                                             {9, 1000, 0},
                                             {2, 9001, 5}}) {
      const Matrix<T> x(rows, columns, gap, 17);
      const ReduceLoops& loops = *find(ReduceKind::kWideSum, element);
      std::vector<DoubleSum> sums(std::max<int64_t>(rows, kMaxColumns));
      loops.rows(x.values.data(), rows, x.stride, columns, 0, nullptr, sums.data());
      for (int64_t r = 0; r < rows; ++r) {
        double expected = 0;
        for (int64_t c = 0; c < columns; ++c) expected += x.At(r, c);
        ASSERT_NEAR(sums[r].high + sums[r].low, expected, tolerance * columns);
      }
      if (columns > kMaxColumns) continue;
      for (const ReduceKind kind : {ReduceKind::kSum, ReduceKind::kWideSum}) {
        if (kind == ReduceKind::kSum && !kIsFloat<T>) continue;  // in integers
        find(kind, element)
            ->columns(x.values.data(), rows, x.stride, columns, 0, nullptr, sums.data());
        for (int64_t c = 0; c < columns; ++c) {
          double expected = 0;
          for (int64_t r = 0; r < rows; ++r) expected += x.At(r, c);
          const double allowed = sizeof(T) < 8 && kind == ReduceKind::kSum ? 1e-6 : tolerance;
          ASSERT_NEAR(sums[c].high + sums[c].low, expected, allowed * rows) << rows << " rows";
        }
      }
    }
  }
}

TEST(ReduceLoops, SumsOfEachType) {
  CheckSums<float>(ElementKind::kF32, 1e-15);
  CheckSums<double>(ElementKind::kF64, 1e-15);
  CheckSums<Float16>(ElementKind::kF16, 1e-15);
  CheckSums<BFloat16>(ElementKind::kBF16, 1e-15);
  CheckSums<int8_t>(ElementKind::kI8, 0);
  CheckSums<int64_t>(ElementKind::kI64, 0);
}

TEST(ReduceLoops, EveryHalfIsLoadedExactly) {
  std::vector<Float16> halves;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits)
    halves.push_back(std::bit_cast<Float16>(static_cast<uint16_t>(bits)));
  for (uint32_t bits = 0x8000; bits < 0xfc00; ++bits)
    halves.push_back(std::bit_cast<Float16>(static_cast<uint16_t>(bits)));
  for (const FindLoops find : Tables()) {
    std::vector<float> largest(halves.size());
    find(ReduceKind::kMax, ElementKind::kF16)
        ->rows(halves.data(), static_cast<int64_t>(halves.size()), 1, 1, 0, nullptr,
               largest.data());
    for (size_t i = 0; i < halves.size(); ++i) ASSERT_EQ(largest[i], static_cast<float>(halves[i]));
    // By vectors too.
    std::vector<float> column(kMaxColumns);
    for (size_t begin = 0; begin + kMaxColumns <= halves.size(); begin += kMaxColumns) {
      find(ReduceKind::kMax, ElementKind::kF16)
          ->columns(halves.data() + begin, 1, kMaxColumns, kMaxColumns, 0, nullptr, column.data());
      for (int64_t c = 0; c < kMaxColumns; ++c)
        ASSERT_EQ(column[c], static_cast<float>(halves[begin + c]));
    }
  }
}

TEST(ReduceLoops, ExponentialsBesideTheLibrary) {
  std::vector<float> x, largest(1, 0);
  for (float value = 0; value > -100; value -= 0.0371f) x.push_back(value);
  for (const FindLoops find : Tables()) {
    for (const float value : x) {
      DoubleSum sum;
      find(ReduceKind::kExpSum, ElementKind::kF32)->rows(&value, 1, 1, 1, 0, largest.data(), &sum);
      const double expected = std::exp(static_cast<double>(value));
      ASSERT_NEAR(sum.high, expected, value < -87 ? 2e-38 : 1.2e-7 * expected) << value;
    }
  }
  EXPECT_EQ(PortableReduceLoops(ReduceKind::kExpSum, ElementKind::kI32), nullptr);
}

// Bias gradients keep their bits: eight rows side by side, blocks of sixty-four of those, eight blocks in float, sums of those
// in double.
TEST(ReduceLoops, FloatColumnsAreAddedInTheirOrder) {
  for (const FindLoops find : Tables()) {
    for (const auto& [rows, n] : {std::tuple<int, int>{7, 20},
                                  {8, 3},
                                  {64, 128},
                                  {1100, 10},
                                  {1543, 200},
                                  {4100, 20},
                                  {36864, 20}}) {
      const Matrix<float> x(rows, n, 0, 23);
      std::vector<float> total(8 * n), block(8 * n);
      std::vector<double> sum(n);
      const auto add = [&] {
        for (int half = 4; half >= 1; half /= 2) {
          for (int c = 0; c < half * n; ++c) total[c] += total[half * n + c];
        }
        for (int c = 0; c < n; ++c) sum[c] += total[c];
        std::fill(total.begin(), total.end(), 0.0f);
      };
      int row = 0;
      while (row + 8 <= rows) {
        const int passes = std::min(64, (rows - row) / 8);
        for (int c = 0; c < 8 * n; ++c) {
          block[c] = x.values[row * n + c];
          for (int pass = 1; pass < passes; ++pass) block[c] += x.values[(row + 8 * pass) * n + c];
          total[c] += block[c];
        }
        row += passes * 8;
        if (row % 4096 == 0 && row + 8 <= rows) add();
      }
      for (; row < rows; ++row) {
        for (int c = 0; c < n; ++c) total[c] += x.values[row * n + c];
      }
      add();
      std::vector<DoubleSum> sums(n);
      find(ReduceKind::kSum, ElementKind::kF32)
          ->columns(x.values.data(), rows, n, n, 0, nullptr, sums.data());
      for (int c = 0; c < n; ++c) ASSERT_EQ(sums[c].high, sum[c]) << rows;
    }
  }
}

// Float alone has no more than 24 bits for 2^18 rows.
TEST(ReduceLoops, SumsOfManyRowsAreExactToTheFloat) {
  constexpr int64_t kRows = 1 << 18, kColumns = 3;
  const Matrix<float> x(kRows, kColumns, 0, 5);
  for (const FindLoops find : Tables()) {
    std::vector<DoubleSum> sums(kColumns);
    find(ReduceKind::kSum, ElementKind::kF32)
        ->columns(x.values.data(), kRows, kColumns, kColumns, 0, nullptr, sums.data());
    for (int64_t c = 0; c < kColumns; ++c) {
      double exact = 0, absolute = 0;
      for (int64_t r = 0; r < kRows; ++r) {
        exact += x.values[r * kColumns + c];
        absolute += std::abs(x.values[r * kColumns + c]);
      }
      EXPECT_NEAR(sums[c].high, exact, 1e-8 * absolute) << c;
    }
  }
}

TEST(ReduceLoops, CompensatedMerging) {
  for (const FindLoops find : Tables()) {
    const ReduceLoops& loops = *find(ReduceKind::kSum, ElementKind::kF64);
    DoubleSum sum{1e16, 0};
    const DoubleSum one{1, 0};
    for (int i = 0; i < 1000; ++i) loops.merge(&one, &sum, 1);
    EXPECT_EQ(sum.high + sum.low, 1e16 + 1000);
  }
}

// Factors around 1, so that thousands of them stay in range, beside a product in 128 bits. Plain
// products of this many are off by tens of units in the last place.
TEST(ReduceLoops, CompensatedProductsOfDoubles) {
  for (const FindLoops find : Tables()) {
    const ReduceLoops& loops = *find(ReduceKind::kProduct, ElementKind::kF64);
    ASSERT_EQ(loops.partial_bytes, sizeof(DoubleSum));
    for (const auto& [rows, columns, gap] : {std::tuple<int, int, int>{1, 1, 0},
                                             {6, 31, 0},
                                             {5, 33, 2},
                                             {1129, 14, 0},
                                             {700, 130, 1},
                                             {2, 9001, 5}}) {
      Matrix<double> x(rows, columns, gap, 29);
      for (double& value : x.values) value = (value < 0 ? -1 : 1) * (1 + value / 16);
      std::vector<DoubleSum> products(std::max<int64_t>(rows, kMaxColumns));
      auto check = [&](const DoubleSum& product, Quad expected) {
        const Quad found = static_cast<Quad>(product.high) + product.low;
        const double error = static_cast<double>(found / expected - 1);
        ASSERT_LT(std::abs(error), 1e-26) << rows << " x " << columns;
        ASSERT_EQ(product.high + product.low, static_cast<double>(expected));
      };
      loops.rows(x.values.data(), rows, x.stride, columns, 0, nullptr, products.data());
      for (int64_t r = 0; r < rows; ++r) {
        Quad expected = 1;
        for (int64_t c = 0; c < columns; ++c) expected *= x.At(r, c);
        check(products[r], expected);
      }
      if (columns > kMaxColumns) continue;
      loops.columns(x.values.data(), rows, x.stride, columns, 0, nullptr, products.data());
      for (int64_t c = 0; c < columns; ++c) {
        Quad expected = 1;
        for (int64_t r = 0; r < rows; ++r) expected *= x.At(r, c);
        check(products[c], expected);
      }
      // In two parts, merged.
      const int64_t half = rows / 2;
      if (half == 0) continue;
      std::vector<DoubleSum> rest(kMaxColumns), whole = products;
      loops.columns(x.values.data(), half, x.stride, columns, 0, nullptr, products.data());
      loops.columns(x.values.data() + half * x.stride, rows - half, x.stride, columns, half,
                    nullptr, rest.data());
      loops.merge(rest.data(), products.data(), columns);
      for (int64_t c = 0; c < columns; ++c) {
        ASSERT_EQ(products[c].high + products[c].low, whole[c].high + whole[c].low);
      }
    }
  }
}

// What is lost says nothing then: `high` alone is what IEEE multiplication gives.
TEST(ReduceLoops, ProductsOfSpecialDoubles) {
  constexpr double kInf = INFINITY, kHuge = 1e308, kTiny = 1e-308;
  for (const FindLoops find : Tables()) {
    const ReduceLoops& loops = *find(ReduceKind::kProduct, ElementKind::kF64);
    for (const std::vector<double>& x : std::vector<std::vector<double>>{{2, kInf},
                                                                         {-kInf, 3, 1},
                                                                         {0, kInf},
                                                                         {NAN, 0},
                                                                         {-1, 0},
                                                                         {kHuge, kHuge, -1},
                                                                         {kTiny, kTiny, 5},
                                                                         {kHuge, kTiny, 3},
                                                                         {kHuge, 0.5, kTiny}}) {
      double expected = 1;
      for (const double value : x) expected *= value;
      DoubleSum product;
      loops.rows(x.data(), 1, 1, static_cast<int64_t>(x.size()), 0, nullptr, &product);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(product.high));
      } else if (std::isinf(expected) || expected == 0) {
        EXPECT_EQ(product.high, expected);
        EXPECT_EQ(std::signbit(product.high), std::signbit(expected));
      } else {
        EXPECT_NEAR(product.high / expected, 1, 1e-15);
      }
    }
  }
}

TensorRef Ref(int rank, const int64_t* dims, const int64_t* strides) {
  TensorRef ref;
  ref.rank = rank;
  ref.dims = dims;
  ref.strides = strides;
  return ref;
}

struct ReduceRows : testing::TestWithParam<bool> {  // read side by side, or not
  ReduceRows() { SetSideBySideReadsForTesting(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(SideBySide, ReduceRows, testing::Bool());

TEST_P(ReduceRows, ExtremesFindNanWhereverItIs) {
  for (const FindLoops find : Tables()) {
    for (const ReduceKind kind : {ReduceKind::kMax, ReduceKind::kMin, ReduceKind::kAbsMax}) {
      const ReduceLoops& loops = *find(kind, ElementKind::kF32);
      for (const int64_t n : {1, 33, 64, 65, 130, 5000}) {
        std::vector<float> x(n);
        for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i * 37 % 101 - 50);
        const auto extreme = [&] {
          float result;
          loops.rows(x.data(), 1, n, n, 0, nullptr, &result);
          return result;
        };
        float expected = kind == ReduceKind::kAbsMax ? std::abs(x[0]) : x[0];
        for (const float value : x) {
          expected = kind == ReduceKind::kMin
                         ? std::min(expected, value)
                         : std::max(expected, kind == ReduceKind::kMax ? value : std::abs(value));
        }
        ASSERT_EQ(extreme(), expected) << n;
        for (int64_t i = 0; i<n; i += n> 200 ? 61 : 1) {
          const float kept = std::exchange(x[i], std::numeric_limits<float>::quiet_NaN());
          ASSERT_TRUE(std::isnan(extreme())) << i << " of " << n;
          x[i] = kept;
        }
      }
    }
  }
}

// Which rows a call has depends on the number of threads: rows that are read side by side are what each is alone, and a long
// row is what its blocks are, one after the other.
TEST_P(ReduceRows, RowsOfFloatsAreWhatEachIsAlone) {
  constexpr int64_t kBlock = 4096;
  for (const FindLoops find : Tables()) {
    for (const ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kMin}) {
      const ReduceLoops& loops = *find(kind, ElementKind::kF32);
      const auto bytes = static_cast<size_t>(loops.partial_bytes);
      for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{9, 0},
                                    {6, 33},
                                    {5, 100},
                                    {4, 1051},
                                    {7, 4099},
                                    {2, 40000},
                                    {5, 9000}}) {
        Matrix<float> x(rows, n, 3, 41);
        if (n > 40 && rows > 4)
          x.values[2 * x.stride + n - 2] = std::numeric_limits<float>::quiet_NaN();
        std::vector<std::byte> together(rows * bytes), alone(rows * bytes), more(bytes);
        loops.rows(x.values.data(), rows, x.stride, n, 0, nullptr, together.data());
        for (int64_t r = 0; r < rows; ++r) {
          const float* const row = x.values.data() + r * x.stride;
          std::byte* const partial = alone.data() + static_cast<size_t>(r) * bytes;
          loops.rows(row, 1, 0, std::min(n, kBlock), 0, nullptr, partial);
          for (int64_t begin = kBlock; begin < n; begin += kBlock) {
            loops.rows(row + begin, 1, 0, std::min(n - begin, kBlock), 0, nullptr, more.data());
            loops.merge(more.data(), partial, 1);
          }
        }
        ASSERT_EQ(together, alone) << rows << " rows of " << n;
      }
    }
  }
}

TEST(ReducePlan, MergesSortsAndTurns) {
  const int64_t dims[] = {2, 3, 4, 5}, dense[] = {60, 20, 5, 1};
  const int64_t z_dims[] = {4, 5}, z_strides[] = {5, 1};
  ReducePlan plan;
  EXPECT_TRUE(MakeReducePlan(Ref(4, dims, dense), Ref(2, z_dims, z_strides), 0b0011, &plan));
  EXPECT_FALSE(plan.inner_is_reduced);
  EXPECT_EQ(plan.inner.size, 20);
  EXPECT_EQ(plan.kept.count, 0);
  EXPECT_EQ(plan.reduced.size(), 6);
  // Transposed: what was the first axis is the one without gaps.
  const int64_t turned_dims[] = {5, 4}, turned[] = {1, 5};
  const int64_t one[] = {4}, one_stride[] = {1};
  EXPECT_TRUE(MakeReducePlan(Ref(2, turned_dims, turned), Ref(1, one, one_stride), 0b01, &plan));
  EXPECT_TRUE(plan.inner_is_reduced);
  EXPECT_EQ(plan.inner.size, 5);
  EXPECT_EQ(plan.kept.XOffset(3), 15);
  EXPECT_EQ(plan.kept.ZOffset(3), 3);
  // No axis without gaps: planned as its copy is.
  const int64_t gaps[] = {8, 2};
  EXPECT_FALSE(MakeReducePlan(Ref(2, turned_dims, gaps), Ref(1, one, one_stride), 0b01, &plan));
  EXPECT_FALSE(plan.inner_is_reduced);
  EXPECT_EQ(plan.reduced.XOffset(2), 8);
  // Broadcast views have strides of 0 and are copied too.
  const int64_t zero[] = {0, 0};
  EXPECT_FALSE(MakeReducePlan(Ref(2, turned_dims, zero), Ref(1, one, one_stride), 0b10, &plan));
  EXPECT_TRUE(MakeReducePlan(Ref(0, nullptr, nullptr), Ref(0, nullptr, nullptr), 0, &plan));
  EXPECT_EQ(plan.inner.size, 1);
}

}  // namespace
}  // namespace tidepool::cpu
