// Products of bf16 by their own instruction against sums in double, where the processor has it.
#include "tidepool/backends/cpu/gemm/gemm_bf16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/guarded_array.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

// Elements whose last lies before an unreadable page.
class Elements {
 public:
  explicit Elements(int64_t count)
      : memory_(std::max<int64_t>(1, (count + 1) / 2)),
        data_(reinterpret_cast<BFloat16*>(memory_.data() + memory_.size()) - count),
        count_(count) {}
  uint16_t* bits() { return reinterpret_cast<uint16_t*>(data_); }
  BFloat16& operator[](int64_t i) { return data_[i]; }
  void Randomize(std::mt19937_64& random) {
    std::uniform_real_distribution<float> draw(-1, 1);
    for (int64_t i = 0; i < count_; ++i) data_[i] = BFloat16(draw(random));
  }

 private:
  GuardedArray memory_;
  BFloat16* data_;
  int64_t count_;
};

struct AlignedScratch {
  explicit AlignedScratch(size_t bytes) : memory(bytes + 64) {}
  void* get() {
    return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  }
  std::vector<char> memory;
};

class GemmBf16Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasGemmBf16()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  }
  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  std::mt19937_64 random_{78};
};

TEST_F(GemmBf16Test, RandomProblemsInAllForms) {
  WorkerPool pool(3);
  double worst = 0;
  for (int round = 0; round < 240; ++round) {
    const bool large = round % 20 == 0, few = round % 4 == 1;
    const int64_t m = large ? Pick(100, 600) : Pick(1, few ? 4 : 60),
                  n = large ? Pick(100, 600) : Pick(1, 90);
    const int64_t k = large || few ? Pick(1, 1300) : Pick(0, 70);
    const bool a_transposed = Pick(0, 1), b_transposed = Pick(0, 1);
    const int64_t ldc = n + Pick(0, 3);
    Elements a(m * k), b(k * n), bias(n), alone((m - 1) * ldc + n), shared((m - 1) * ldc + n);
    a.Randomize(random_), b.Randomize(random_), bias.Randomize(random_), alone.Randomize(random_);
    std::vector<BFloat16> before(&alone[0], &alone[0] + (m - 1) * ldc + n);
    std::copy(before.begin(), before.end(), &shared[0]);
    GemmBf16Problem p{};
    p.m = m, p.n = n, p.k = k;
    p.a = a.bits(), p.b = b.bits(), p.ldc = ldc;
    p.a_row_stride = a_transposed ? 1 : k, p.a_col_stride = a_transposed ? m : 1;
    p.b_row_stride = b_transposed ? 1 : n, p.b_col_stride = b_transposed ? k : 1;
    p.bias = Pick(0, 1) ? bias.bits() : nullptr;
    p.relu = Pick(0, 1), p.accumulate = Pick(0, 1);
    AlignedScratch scratch(GemmBf16ScratchBytes(m, n, k, 3));
    p.c = alone.bits();
    GemmBf16(p, scratch.get(), nullptr);
    p.c = shared.bits();
    GemmBf16(p, scratch.get(), &pool);
    ASSERT_EQ(std::memcmp(alone.bits(), shared.bits(), before.size() * 2), 0) << "round " << round;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < (i + 1 < m ? ldc : n); ++j) {
        const float before_here = before[i * ldc + j];
        if (j >= n) {
          ASSERT_EQ(alone[i * ldc + j], before_here) << "outside, round " << round;
          continue;
        }
        if (large && (i * 31 + j) % 97 != 0) continue;
        double sum = p.accumulate ? before_here : 0.0, sizes = std::abs(sum);
        if (p.bias != nullptr) sum += bias[j], sizes += std::abs(bias[j]);
        for (int64_t l = 0; l < k; ++l) {
          const double product = static_cast<double>(a[i * p.a_row_stride + l * p.a_col_stride]) *
                                 b[l * p.b_row_stride + j * p.b_col_stride];
          sum += product, sizes += std::abs(product);
        }
        if (p.relu && sum < 0) sum = 0;
        // One rounding to 8 bits, and of sums in f32 much less than one for each product.
        const double error = std::abs(alone[i * ldc + j] - sum) - 0x1p-8 * std::abs(sum);
        worst = std::max(worst, error / std::max(sizes, 1e-30));
        ASSERT_LE(error, 0x1p-22 * sizes)
            << "round " << round << " m " << m << " n " << n << " k " << k;
      }
    }
  }
  std::printf("errors beyond the last rounding: %.3g of the sum of sizes\n", worst);
}

TEST_F(GemmBf16Test, InfinitiesAndNanStayInTheirRowsAndColumns) {
  for (const int64_t m : {3, 40}) {  // vector by vector, and in tiles
    const int64_t n = 35, k = 65;    // odd: what lies behind a row must not be looked at
    Elements a(m * k), b(n * k), c(m * n);
    a.Randomize(random_), b.Randomize(random_);
    a[2 * k] = BFloat16(std::numeric_limits<float>::infinity());  // behind row 1
    b[29 * k + 4] = BFloat16(std::numeric_limits<float>::quiet_NaN());
    AlignedScratch scratch(GemmBf16ScratchBytes(m, n, k, 1));
    GemmBf16({m, n, k, a.bits(), k, 1, b.bits(), 1, k, c.bits(), n}, scratch.get(), nullptr);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        EXPECT_EQ(std::isfinite(c[i * n + j]), i != 2 && j != 29) << m << ": " << i << ", " << j;
      }
    }
  }
}

TEST_F(GemmBf16Test, InfinityTimesADenormalNumberIsInfinity) {
  for (const int64_t m : {2, 40}) {
    for (const bool accumulate : {false, true}) {
      const int64_t n = 35, k = 600;  // two blocks of the inner dimension
      Elements a(m * k), b(n * k), c(m * n), without(m * n);
      a.Randomize(random_), b.Randomize(random_), c.Randomize(random_);
      std::copy(&c[0], &c[0] + m * n, &without[0]);
      AlignedScratch scratch(GemmBf16ScratchBytes(m, n, k, 1));
      GemmBf16Problem p{m, n, k, a.bits(), k, 1, b.bits(), 1, k, without.bits(), n};
      p.accumulate = accumulate;
      GemmBf16(p, scratch.get(), nullptr);
      const BFloat16 kept = a[k + 7];
      a[k + 7] = BFloat16(std::numeric_limits<float>::infinity());
      for (int64_t j = 0; j < n; ++j) b[j * k + 7] = BFloat16(j == 3 ? 1e-40f : b[j * k + 7]);
      p.c = c.bits();
      GemmBf16(p, scratch.get(), nullptr);
      EXPECT_EQ(c[n + 3], std::numeric_limits<float>::infinity()) << m;
      for (int64_t i = 0; i < m; ++i) {  // neighbours keep their bits
        for (int64_t j = 0; j < n; ++j) {
          if (i == 1 || j == 3) continue;
          EXPECT_EQ(c[i * n + j], without[i * n + j]) << m << ": " << i << ", " << j;
        }
      }
      a[k + 7] = kept;
    }
  }
}

// What the header says of them: the smallest normal number counts, below it nothing does.
TEST_F(GemmBf16Test, DenormalOperandsAreZeros) {
  const float least = std::numeric_limits<float>::min();
  for (const int64_t m : {1, 8}) {
    Elements a(m * 2), b(2), c(m);
    for (const auto& [value, expected] : {std::pair(least, 1.0f), std::pair(least / 2, 0.0f)}) {
      for (int64_t i = 0; i < m * 2; ++i) a[i] = BFloat16(i % 2 == 0 ? value : 0.0f);
      b[0] = BFloat16(1.0f / least), b[1] = BFloat16(1.0f);
      AlignedScratch scratch(GemmBf16ScratchBytes(m, 1, 2, 1));
      GemmBf16({m, 1, 2, a.bits(), 2, 1, b.bits(), 1, 2, c.bits(), 1}, scratch.get(), nullptr);
      for (int64_t i = 0; i < m; ++i) EXPECT_EQ(c[i], expected) << value;
    }
  }
}

}  // namespace
}  // namespace tidepool::cpu
