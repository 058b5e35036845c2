#include "tidepool/backends/cpu/gemm/gemm.h"

#include <string.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/guarded_array.h"
#include "tidepool/backends/cpu/gemm/tile_kernels.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr uint64_t kSeed = 20240611;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Pool = std::unique_ptr<ThreadPool>;

// Every test runs with each implementation this processor has.
class GemmTest : public testing::TestWithParam<const TileKernels*> {
 protected:
  GemmTest() : random_(kSeed) {
    ForceTileKernelsForTesting(GetParam());
    RecordProperty("seed", std::to_string(kSeed));
  }
  ~GemmTest() override { ForceTileKernelsForTesting(nullptr); }

  int64_t Uniform(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  // Block edges and their neighbours more often than chance would pick them.
  int64_t Size(int64_t limit) {
    static constexpr int64_t kEdges[] = {0,  1,  2,   3,   4,   5,   6,   7,   8,   9,   12,  15,
                                         16, 17, 23,  24,  25,  31,  32,  33,  40,  47,  48,  49,
                                         64, 97, 127, 128, 129, 239, 240, 241, 251, 383, 384, 385};
    const int64_t edge = kEdges[Uniform(0, std::size(kEdges) - 1)];
    return Uniform(0, 1) == 0 && edge <= limit ? edge : Uniform(1, limit);
  }

  std::mt19937_64 random_;
};

// An m x n matrix in one of the layouts Gemm meets, with gaps.
struct StridedMatrix {
  StridedMatrix(int64_t rows, int64_t columns, int layout, int64_t gap)
      : row_stride(layout == 0   ? columns + gap
                   : layout == 1 ? 1
                                 : (columns + gap) * 3),
        column_stride(layout == 0   ? 1
                      : layout == 1 ? rows + gap
                                    : 3),
        array(rows == 0 || columns == 0
                  ? 0
                  : (rows - 1) * row_stride + (columns - 1) * column_stride + 1) {}
  float At(int64_t row, int64_t column) const {
    return array[row * row_stride + column * column_stride];
  }
  int64_t row_stride, column_stride;
  GuardedArray array;
};

size_t ScratchFloats(const GemmProblem& p, int threads) {
  const size_t bytes = GemmScratchBytes(p, threads);
  EXPECT_LE(bytes, GemmScratchBytes(p.m, p.n, p.k, threads));
  EXPECT_EQ(bytes % 64, 0u);
  return bytes / sizeof(float);
}

TEST_P(GemmTest, RandomProblemsAgreeWithDoublePrecision) {
  for (int round = 0; round < 1500; ++round) {
    const bool large = round % 50 == 0;
    GemmProblem p;
    p.m = Size(large ? 700 : 70), p.n = Size(large ? 300 : 70), p.k = Size(large ? 900 : 70);
    const int a_layout = Uniform(0, 2), b_layout = Uniform(0, 2);
    StridedMatrix a(p.m, p.k, a_layout, Uniform(0, 1) * Uniform(1, 5));
    StridedMatrix b(p.k, p.n, b_layout, Uniform(0, 1) * Uniform(1, 5));
    GuardedArray bias(p.n);
    a.array.Randomize(random_), b.array.Randomize(random_), bias.Randomize(random_);
    p.ldc = p.n + Uniform(0, 1) * Uniform(1, 9);
    GuardedArray c(p.m == 0 || p.n == 0 ? 0 : (p.m - 1) * p.ldc + p.n);
    c.Randomize(random_);
    const std::vector<float> before(c.data(), c.data() + c.size());
    p.a = a.array.data(), p.a_row_stride = a.row_stride, p.a_col_stride = a.column_stride;
    p.b = b.array.data(), p.b_row_stride = b.row_stride, p.b_col_stride = b.column_stride;
    p.c = c.data();
    p.bias = Uniform(0, 1) ? bias.data() : nullptr;
    p.relu = Uniform(0, 2) == 0;
    p.accumulate = Uniform(0, 2) == 0;
    GuardedArray scratch(ScratchFloats(p, 1));
    scratch.Fill(kNan);
    SCOPED_TRACE(testing::Message()
                 << "seed " << kSeed << " round " << round << ": m=" << p.m << " n=" << p.n
                 << " k=" << p.k << " layouts " << a_layout << b_layout << " ldc=" << p.ldc
                 << " bias=" << (p.bias != nullptr) << " relu=" << p.relu
                 << " accumulate=" << p.accumulate);

    Gemm(p, scratch.data(), nullptr);

    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < std::min<int64_t>(p.ldc, c.size() - i * p.ldc); ++j) {
        const float old = before[i * p.ldc + j];
        if (j >= p.n) {
          ASSERT_EQ(c[i * p.ldc + j], old) << "wrote behind row " << i;
          continue;
        }
        double sum = (p.bias ? bias[j] : 0.0) + (p.accumulate ? old : 0.0);
        double magnitude = std::abs(sum) + 2.0;
        for (int64_t k = 0; k < p.k; ++k) {
          const double product = double{a.At(i, k)} * b.At(k, j);
          sum += product;
          magnitude += std::abs(product);
        }
        if (p.relu && sum < 0) sum = 0;
        const double bound = (p.k + 3) * magnitude * std::numeric_limits<float>::epsilon() / 2;
        ASSERT_NEAR(c[i * p.ldc + j], sum, bound) << "at " << i << "," << j;
      }
    }
    ASSERT_TRUE(c.FrontIntact());
    ASSERT_TRUE(scratch.FrontIntact());
  }
}

TEST_P(GemmTest, SameBitsForAnyPool) {
  std::vector<Pool> pools;
  for (int threads : {1, 2, 3}) pools.push_back(std::make_unique<WorkerPool>(threads));
  for (int round = 0; round < 60; ++round) {
    GemmProblem p;
    p.m = Uniform(40, 400), p.n = Uniform(40, 400), p.k = Uniform(100, 800);
    const int a_layout = Uniform(0, 1), b_layout = Uniform(0, 1);
    StridedMatrix a(p.m, p.k, a_layout, 0), b(p.k, p.n, b_layout, 0);
    GuardedArray bias(p.n), c(p.m * p.n), start(p.m * p.n);
    for (GuardedArray* array : {&a.array, &b.array, &bias, &start}) array->Randomize(random_);
    p.a = a.array.data(), p.a_row_stride = a.row_stride, p.a_col_stride = a.column_stride;
    p.b = b.array.data(), p.b_row_stride = b.row_stride, p.b_col_stride = b.column_stride;
    p.c = c.data(), p.ldc = p.n, p.bias = bias.data();
    p.accumulate = round % 2 == 0;
    std::vector<float> expected;
    for (int pool = -1; pool < 3; ++pool) {
      memcpy(c.data(), start.data(), c.size() * sizeof(float));
      const int threads = pool < 0 ? 1 : pool + 1;
      GuardedArray scratch(ScratchFloats(p, threads));
      Gemm(p, scratch.data(), pool < 0 ? nullptr : pools[pool].get());
      if (pool < 0) expected.assign(c.data(), c.data() + c.size());
      ASSERT_EQ(memcmp(expected.data(), c.data(), c.size() * sizeof(float)), 0)
          << threads << " threads, seed " << kSeed << " round " << round << ": " << p.m << "x"
          << p.n << "x" << p.k;
      ASSERT_TRUE(scratch.FrontIntact());
    }
  }
}

// Rows so far apart that they share places of the cache are read where they lie or copied.
TEST_P(GemmTest, RowsThatCompeteForTheCache) {
  for (const int64_t stride : {256, 512, 1024, 2048}) {
    const int64_t m = 20, n = 520, k = 21;
    GuardedArray a((m - 1) * stride + k), b(k * n), c(m * n);
    a.Randomize(random_), b.Randomize(random_);
    GuardedArray scratch(GemmScratchBytes(m, n, k, 1) / 4);
    Gemm({m, n, k, a.data(), stride, 1, b.data(), n, 1, c.data(), n}, scratch.data(), nullptr);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l) sum += double{a[i * stride + l]} * b[l * n + j];
        ASSERT_NEAR(c[i * n + j], sum, 1e-4) << stride << ": " << i << "," << j;
      }
    }
  }
}

// What a task needs of it is on its stack: also where there are many of them, on several threads at once.
TEST_P(GemmTest, SmallProductsTakeNoScratch) {
  EXPECT_EQ(GemmScratchBytes(36, 36, 36, 4), 0u);
  EXPECT_GT(GemmScratchBytes(37, 37, 37, 1), 0u);
  WorkerPool pool(3);
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{8, 8, 8}, {36, 36, 36}, {20000, 8, 3}, {8, 20000, 3}}) {
    for (int layout : {0, 1}) {
      ASSERT_EQ(GemmScratchBytes(m, n, k, 3), 0u) << m << "x" << n << "x" << k;
      StridedMatrix a(m, k, layout, 0), b(k, n, layout, 0);
      GuardedArray c(m * n);
      a.array.Randomize(random_), b.array.Randomize(random_);
      Gemm({m, n, k, a.array.data(), a.row_stride, a.column_stride, b.array.data(), b.row_stride,
            b.column_stride, c.data(), n},
           nullptr, &pool);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l) sum += double{a.At(i, l)} * b.At(l, j);
          ASSERT_NEAR(c[i * n + j], sum, 1e-5)
              << m << "x" << n << "x" << k << " at " << i << "," << j;
        }
      }
    }
  }
}

TEST_P(GemmTest, InfinityTimesZeroIsNanAndReluKeepsNan) {
  for (int64_t n : {1, 8, 10, 20, 32, 48, 50, 64}) {
    for (bool b_is_transposed : {false, true}) {
      GuardedArray a(2 * 3), b(3 * n), c(2 * n), scratch(GemmScratchBytes(2, n, 3, 1) / 4);
      a.Fill(1.0f), b.Fill(-1.0f);
      a[1] = 0.0f;                                        // a(0, 1)
      b[b_is_transposed ? 1 : n] = kInfinity;             // b(1, 0)
      b[b_is_transposed ? 3 * n - 1 : 3 * n - 1] = kNan;  // b(2, n - 1)
      GemmProblem p = {2,
                       n,
                       3,
                       a.data(),
                       3,
                       1,
                       b.data(),
                       b_is_transposed ? 1 : n,
                       b_is_transposed ? 3 : 1,
                       c.data(),
                       n};
      p.relu = true;
      Gemm(p, scratch.data(), nullptr);
      EXPECT_TRUE(std::isnan(c[0])) << "0 * infinity, n=" << n;
      EXPECT_TRUE(std::isnan(c[n - 1])) << "NaN in B, n=" << n;
      EXPECT_TRUE(std::isnan(c[2 * n - 1]));
      if (n > 1) {
        EXPECT_EQ(c[n], kInfinity);
      }
      if (n > 2) {
        EXPECT_EQ(c[1], 0.0f);
      }
    }
  }
}

TEST_P(GemmTest, OldContentIsNotReadUnlessAccumulating) {
  GuardedArray a(6 * 7), b(7 * 20), c(6 * 20), scratch(GemmScratchBytes(6, 20, 7, 1) / 4);
  a.Fill(1.0f), b.Fill(2.0f), c.Fill(kNan);
  Gemm({6, 20, 7, a.data(), 7, 1, b.data(), 20, 1, c.data(), 20}, scratch.data(), nullptr);
  for (size_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i], 14.0f);
}

TEST_P(GemmTest, EmptyInnerDimension) {
  GuardedArray bias(5), c(15), scratch(GemmScratchBytes(3, 5, 0, 1) / 4);
  bias.Fill(-3.0f), c.Fill(7.0f);
  GemmProblem p = {3, 5, 0, nullptr, 1, 1, nullptr, 5, 1, c.data(), 5};
  p.accumulate = true;
  Gemm(p, scratch.data(), nullptr);
  for (size_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i], 7.0f);
  p.accumulate = false, p.bias = bias.data();
  Gemm(p, scratch.data(), nullptr);
  for (size_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i], -3.0f);
}

TEST_P(GemmTest, ImpossibleProblemsAreRefusedBeforeWriting) {
  GuardedArray c(4);
  c.Fill(7.0f);
  const float one = 1.0f;
  const GemmProblem good = {2, 2, 1, &one, 0, 0, &one, 0, 0, c.data(), 2};
  GemmProblem negative = good, overlapping = good, no_a = good, no_c = good;
  negative.k = -1, overlapping.ldc = 1, no_a.a = nullptr, no_c.c = nullptr;
  for (const GemmProblem& bad : {negative, overlapping, no_a, no_c}) {
    try {
      Gemm(bad, nullptr, nullptr);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(error.message().find("m=2 n=2"), std::string::npos) << error.message();
    }
  }
  for (size_t i = 0; i < c.size(); ++i) EXPECT_EQ(c[i], 7.0f);
}

// The same order of multiply-adds, whatever the width of the registers.
TEST(GemmBits, VectorKernelsAgreeToTheBit) {
  std::mt19937_64 random(kSeed);
  const auto draw = [&](std::vector<float>& values) {
    for (float& value : values) value = static_cast<float>(random() % 20001) / 10000 - 1;
  };
  for (int round = 0; round < 60; ++round) {
    const int64_t m = 2 + static_cast<int64_t>(random() % 70),
                  n = 2 + static_cast<int64_t>(random() % 150);
    const int64_t k = 1 + static_cast<int64_t>(random() % 900);
    std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)),
        bias(static_cast<size_t>(n));
    for (std::vector<float>* values : {&a, &b, &bias}) draw(*values);
    const bool a_turned = random() % 2 == 0, b_turned = random() % 2 == 0;
    std::vector<std::byte> scratch(GemmScratchBytes(m, n, k, 1) + 64);
    void* const aligned =
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    std::vector<float> first;
    for (const TileKernels* kernels : AllTileKernels()) {
      if (kernels == &PortableTileKernels()) continue;
      ForceTileKernelsForTesting(kernels);
      std::vector<float> c(static_cast<size_t>(m * n));
      Gemm({.m = m,
            .n = n,
            .k = k,
            .a = a.data(),
            .a_row_stride = a_turned ? 1 : k,
            .a_col_stride = a_turned ? m : 1,
            .b = b.data(),
            .b_row_stride = b_turned ? 1 : n,
            .b_col_stride = b_turned ? k : 1,
            .c = c.data(),
            .ldc = n,
            .bias = bias.data(),
            .relu = round % 3 == 0},
           aligned, nullptr);
      ForceTileKernelsForTesting(nullptr);
      if (first.empty()) first = c;
      ASSERT_EQ(c, first) << kernels->name << ": " << m << "x" << k << "x" << n;
    }
  }
}

std::vector<const TileKernels*> Implementations() {
  const TileKernelsOfProcessor all = AllTileKernels();
  return {all.begin(), all.end()};
}

INSTANTIATE_TEST_SUITE_P(Kernels, GemmTest, testing::ValuesIn(Implementations()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace tidepool::cpu
