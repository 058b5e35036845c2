// Products of bf16 by their own instructions against sums in double, where the processor has them.
#include "tidepool/backends/cpu/gemm/gemm_bf16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/gemm/guarded_array.h"
#include "tidepool/backends/cpu/gemm/tile_bf16_amx.h"
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

struct AlignedScratch {  // full of NaN
  explicit AlignedScratch(size_t bytes) : memory(bytes + 64, '\xff') {}
  void* get() {
    return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  }
  std::vector<char> memory;
};

enum class Way { kPairs, kAmx };

TEST(GemmBf16Choice, SlowPairsAreForFewRowsAndAmxForAllButTinyProducts) {
  for (const bool has_amx : {false, true}) {
    EXPECT_TRUE(IsGemmBf16Ahead(512, 512, 512, /*pairs_are_fast=*/true, has_amx));
    EXPECT_TRUE(IsGemmBf16Ahead(31, 2048, 2048, /*pairs_are_fast=*/false, has_amx));
    EXPECT_TRUE(IsGemmBf16Ahead(1, 2048, 2048, /*pairs_are_fast=*/false, has_amx));
    EXPECT_FALSE(IsGemmBf16Ahead(2048, 3, 1, /*pairs_are_fast=*/false, has_amx));
    EXPECT_EQ(IsGemmBf16Ahead(32, 512, 512, /*pairs_are_fast=*/false, has_amx), has_amx);
    EXPECT_EQ(IsGemmBf16Ahead(2048, 8, 2048, /*pairs_are_fast=*/false, has_amx), has_amx);
  }
}

class GemmBf16Test : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!HasGemmBf16()) GTEST_SKIP() << "this processor has no AVX512_BF16";
    if (GetParam() == Way::kAmx && SelectedAmxTiles() == nullptr)
      GTEST_SKIP() << "this processor has no AMX for bf16, or the system refuses it";
    RefuseAmxForTesting(GetParam() != Way::kAmx);
  }
  void TearDown() override { RefuseAmxForTesting(false); }
  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  std::mt19937_64 random_{78};
};

struct Form {
  int64_t m, n, k, ldc;
  bool a_transposed, b_transposed, bias, relu, accumulate;
};
std::ostream& operator<<(std::ostream& out, const Form& f) {
  return out << "m " << f.m << " n " << f.n << " k " << f.k << " ldc " << f.ldc << " transposed "
             << f.a_transposed << f.b_transposed << " bias " << f.bias << " relu " << f.relu
             << " accumulate " << f.accumulate;
}

// Random operands in that form, alone and by the pool, of whose elements every `step`-th is compared with a sum in double.
void Check(const Form& f, int64_t step, ThreadPool* pool, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << f);
  const int64_t size = (f.m - 1) * f.ldc + f.n;
  Elements a(f.m * f.k), b(f.k * f.n), bias(f.n), alone(size), shared(size);
  for (Elements* each : {&a, &b, &bias, &alone}) each->Randomize(random);
  const std::vector<BFloat16> before(&alone[0], &alone[0] + size);
  std::copy(before.begin(), before.end(), &shared[0]);
  GemmBf16Problem p{};
  p.m = f.m, p.n = f.n, p.k = f.k;
  p.a = a.bits(), p.b = b.bits(), p.ldc = f.ldc;
  p.a_row_stride = f.a_transposed ? 1 : f.k, p.a_col_stride = f.a_transposed ? f.m : 1;
  p.b_row_stride = f.b_transposed ? 1 : f.n, p.b_col_stride = f.b_transposed ? f.k : 1;
  p.bias = f.bias ? bias.bits() : nullptr;
  p.relu = f.relu, p.accumulate = f.accumulate;
  AlignedScratch scratch(GemmBf16ScratchBytes(f.m, f.n, f.k, pool == nullptr ? 1 : 3));
  p.c = alone.bits();
  GemmBf16(p, scratch.get(), nullptr);
  if (pool != nullptr) {
    p.c = shared.bits();
    GemmBf16(p, scratch.get(), pool);
    ASSERT_EQ(std::memcmp(alone.bits(), shared.bits(), size * 2), 0);
  }
  for (int64_t i = 0; i < f.m; ++i) {
    for (int64_t j = 0; j < (i + 1 < f.m ? f.ldc : f.n); ++j) {
      const float before_here = before[i * f.ldc + j];
      if (j >= f.n) {
        ASSERT_EQ(alone[i * f.ldc + j], before_here) << "outside";
        continue;
      }
      if ((i * 31 + j) % step != 0) continue;
      double sum = f.accumulate ? before_here : 0.0, sizes = std::abs(sum);
      if (f.bias) sum += bias[j], sizes += std::abs(bias[j]);
      for (int64_t l = 0; l < f.k; ++l) {
        const double product = static_cast<double>(a[i * p.a_row_stride + l * p.a_col_stride]) *
                               b[l * p.b_row_stride + j * p.b_col_stride];
        sum += product, sizes += std::abs(product);
      }
      if (f.relu && sum < 0) sum = 0;
      // One rounding to 8 bits, and of sums in f32 much less than one for each product.
      const double error = std::abs(alone[i * f.ldc + j] - sum) - 0x1p-8 * std::abs(sum);
      ASSERT_LE(error, 0x1p-22 * sizes) << i << ", " << j;
    }
  }
}

TEST_P(GemmBf16Test, RandomProblemsInAllForms) {
  WorkerPool pool(3);
  for (int round = 0; round < 240 && !HasFatalFailure(); ++round) {
    const bool large = round % 20 == 0, few = round % 4 == 1;
    Form f;
    f.m = large ? Pick(100, 600) : Pick(1, few ? 4 : 60);
    f.n = large ? Pick(100, 600) : Pick(1, 90);
    f.k = large || few ? Pick(1, 1300) : Pick(0, 70);
    f.ldc = f.n + Pick(0, 3);
    f.a_transposed = Pick(0, 1), f.b_transposed = Pick(0, 1), f.bias = Pick(0, 1);
    f.relu = Pick(0, 1), f.accumulate = Pick(0, 1);
    Check(f, large ? 97 : 1, &pool, random_);
  }
}

// Around the 16 rows, 16 columns and 32 inner positions of an instruction; small ones and larger ones are multiplied by other
// instructions.
TEST_P(GemmBf16Test, EveryEdge) {
  for (const int64_t m : {5, 15, 16, 17, 32, 33}) {
    for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 65}) {
      for (const int64_t k : {0, 1, 31, 33, 64, 95, 260}) {
        for (int layout = 0; layout < 4 && !HasFatalFailure(); ++layout) {
          const bool odd = (m + n + k) % 2 != 0;
          Check({m, n, k, n, layout % 2 != 0, layout / 2 != 0, odd, k % 4 == 1, n % 3 == 0}, 1,
                nullptr, random_);
        }
      }
    }
  }
}

// Rows of whole lines of the cache, 4 KiB apart, and that begin in the middle of a line: read where they lie, or copied.
TEST_P(GemmBf16Test, RowsWhereverTheyBegin) {
  for (const int64_t stride : {1024, 2048, 2056}) {
    for (const int64_t first : {0, 8}) {
      const int64_t m = 40, n = 80, k = 544;
      Elements a(m * stride + 64), b(k * n), c(m * n);
      a.Randomize(random_), b.Randomize(random_);
      const int64_t to_line = (64 - reinterpret_cast<uintptr_t>(a.bits()) % 64) % 64 / 2;
      AlignedScratch scratch(GemmBf16ScratchBytes(m, n, k, 1));
      const int64_t begin = to_line + first;
      GemmBf16({m, n, k, a.bits() + begin, stride, 1, b.bits(), n, 1, c.bits(), n}, scratch.get(),
               nullptr);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l)
            sum += static_cast<double>(a[begin + i * stride + l]) * b[l * n + j];
          ASSERT_NEAR(c[i * n + j], sum, 0x1p-8 * std::abs(sum) + 1e-4) << i << ", " << j;
        }
      }
    }
  }
}

TEST_P(GemmBf16Test, InfinitiesAndNanStayInTheirRowsAndColumns) {
  for (const int64_t m : {3, 8, 40}) {  // vector by vector, turned where that is done, and in tiles
    const int64_t n = 35, k = 65;       // odd: what lies behind a row must not be looked at
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

TEST_P(GemmBf16Test, InfinityTimesADenormalNumberIsInfinity) {
  for (const int64_t m : {2, 8, 40}) {
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
TEST_P(GemmBf16Test, DenormalOperandsAreZeros) {
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

#if defined(__x86_64__)
// Else the system would save them whenever the thread is interrupted.
TEST_P(GemmBf16Test, TileRegistersAreGivenBack) {
  if (GetParam() != Way::kAmx) return;
  Elements a(64 * 64), b(64 * 64), c(64 * 64);
  AlignedScratch scratch(GemmBf16ScratchBytes(64, 64, 64, 1));
  GemmBf16({64, 64, 64, a.bits(), 64, 1, b.bits(), 64, 1, c.bits(), 64}, scratch.get(), nullptr);
  struct Shapes {
    uint8_t palette, rest[63];
  } shapes = {1, {}};
  __asm__ volatile("sttilecfg %0" : "=m"(shapes));
  EXPECT_EQ(shapes.palette, 0);
}
#endif

INSTANTIATE_TEST_SUITE_P(Ways, GemmBf16Test, testing::Values(Way::kPairs, Way::kAmx),
                         [](const auto& info) {
                           return std::string(info.param == Way::kAmx ? "Amx" : "Pairs");
                         });

}  // namespace
}  // namespace tidepool::cpu
