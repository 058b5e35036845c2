// The double-precision product and its tiles against sums in long double.
#include "tidepool/backends/cpu/gemm/gemm_f64.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

class GemmF64Test : public ::testing::Test {
 protected:
  std::vector<double> Values(int64_t count) {
    std::vector<double> values(count);
    std::uniform_real_distribution<double> draw(-1, 1);
    for (double& value : values) value = draw(random_);
    return values;
  }
  int64_t Pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  std::mt19937_64 random_{77};
};

struct AlignedScratch {
  explicit AlignedScratch(size_t bytes) : memory(bytes + 64) {}
  void* get() {
    return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  }
  std::vector<char> memory;
};

TEST_F(GemmF64Test, RandomProblemsInAllForms) {
  WorkerPool pool(3);
  for (int round = 0; round < 150; ++round) {
    const bool large = round % 15 == 0;
    const int64_t m = large ? Pick(100, 1100) : Pick(1, 40),
                  n = large ? Pick(100, 700) : Pick(1, 40);
    const int64_t k = large ? Pick(1, 450) : Pick(0, 40);
    const bool a_transposed = Pick(0, 1), b_transposed = Pick(0, 1);
    const std::vector<double> a = Values(m * k), b = Values(k * n), bias = Values(n);
    const int64_t ldc = n + Pick(0, 3);
    const std::vector<double> before = Values(m * ldc);
    GemmF64Problem p{};
    p.m = m, p.n = n, p.k = k;
    p.a = a.data(), p.b = b.data(), p.ldc = ldc;
    p.a_row_stride = a_transposed ? 1 : k, p.a_col_stride = a_transposed ? m : 1;
    p.b_row_stride = b_transposed ? 1 : n, p.b_col_stride = b_transposed ? k : 1;
    p.bias = Pick(0, 1) ? bias.data() : nullptr;
    p.relu = Pick(0, 1), p.accumulate = Pick(0, 1);
    std::vector<double> alone = before, shared = before;
    AlignedScratch scratch(GemmF64ScratchBytes(m, n, k, 3));
    p.c = alone.data();
    GemmF64(p, scratch.get(), nullptr);
    p.c = shared.data();
    GemmF64(p, scratch.get(), &pool);
    ASSERT_EQ(std::memcmp(alone.data(), shared.data(), alone.size() * sizeof(double)), 0);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < ldc; ++j) {
        if (j >= n) {
          ASSERT_EQ(alone[i * ldc + j], before[i * ldc + j]) << "outside, round " << round;
          continue;
        }
        if (large && (i * 31 + j) % 97 != 0) continue;
        long double sum = p.accumulate ? before[i * ldc + j] : 0.0;
        if (p.bias != nullptr) sum += bias[j];
        for (int64_t l = 0; l < k; ++l) {
          sum += static_cast<long double>(a[i * p.a_row_stride + l * p.a_col_stride]) *
                 b[l * p.b_row_stride + j * p.b_col_stride];
        }
        if (p.relu && sum < 0) sum = 0;
        ASSERT_NEAR(alone[i * ldc + j], static_cast<double>(sum), 1e-15 * (k + 4))
            << "round " << round << " m " << m << " n " << n << " k " << k;
      }
    }
  }
}

TEST_F(GemmF64Test, InfinitiesStayInTheirRowsAndColumns) {
  const int64_t size = 30;
  std::vector<double> a = Values(size * size), b = Values(size * size), c(size * size);
  a[3 * size + 4] = std::numeric_limits<double>::infinity();
  b[7 * size + 29] = std::numeric_limits<double>::quiet_NaN();
  AlignedScratch scratch(GemmF64ScratchBytes(size, size, size, 1));
  GemmF64({size, size, size, a.data(), size, 1, b.data(), size, 1, c.data(), size}, scratch.get(),
          nullptr);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      EXPECT_EQ(std::isfinite(c[i * size + j]), i != 3 && j != 29) << i << ", " << j;
    }
  }
}

TEST_F(GemmF64Test, EachTileMultiplies) {
  std::vector<const TileF64*> tiles = {&kPortableTileF64};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    tiles.push_back(&kAvx2TileF64);
    if (__builtin_cpu_supports("avx512f")) tiles.push_back(&kAvx512TileF64);
  }
#endif
  for (const TileF64* tile : tiles) {
    for (int64_t width = tile->narrowest; width <= tile->columns; width += tile->narrowest) {
      for (const int64_t depth : {0, 1, 3, 4, 50}) {
        for (const bool add : {false, true}) {
          const int64_t ldc = width + 3;
          const std::vector<double> a = Values(depth * tile->rows), b = Values(depth * width);
          const std::vector<double> before = Values(tile->rows * ldc);
          std::vector<double> c = before;
          tile->multiply(a.data(), b.data(), depth, width, c.data(), ldc, add);
          for (int64_t i = 0; i < tile->rows; ++i) {
            for (int64_t j = 0; j < ldc; ++j) {
              double sum = add || j >= width ? before[i * ldc + j] : 0;
              for (int64_t k = 0; j < width && k < depth; ++k)
                sum += a[k * tile->rows + i] * b[k * width + j];
              ASSERT_NEAR(c[i * ldc + j], sum, 1e-13) << width << " by " << depth << ": " << i;
            }
          }
        }
      }
    }
  }
}

// Panels of every width, of vectors that are neighbours or whose inner positions are.
TEST_F(GemmF64Test, EachTilePacks) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "only tiles of AVX-512 pack";
  const TileF64& tile = kAvx512TileF64;
  for (const int64_t width : {8, 16, 24}) {
    for (const int64_t count : {1, 7, 8, 23, 24, 25, 100, 200}) {
      for (const int64_t depth : {0, 1, 7, 8, 9, 20}) {
        for (const bool across : {false, true}) {
          const int64_t vector_stride = across ? 1 : depth + 1;
          const int64_t depth_stride = across ? count + 2 : 1;
          const std::vector<double> from =
              Values(depth == 0 ? 0 : (count - 1) * vector_stride + (depth - 1) * depth_stride + 1);
          const int64_t panels = (count + width - 1) / width;
          std::vector<double> to(panels * width * depth + 1, 7.0);
          tile.pack(from.data(), vector_stride, depth_stride, count, depth, width, to.data());
          EXPECT_EQ(to.back(), 7.0);
          for (int64_t at = 0; at + 1 < static_cast<int64_t>(to.size()); ++at) {
            const int64_t k = at / width % depth, i = at / (width * depth) * width + at % width;
            const double expected = i < count ? from[i * vector_stride + k * depth_stride] : 0.0;
            ASSERT_EQ(to[at], expected) << width << ", " << count << " by " << depth << ": " << at;
          }
        }
      }
    }
  }
#endif
}

}  // namespace
}  // namespace tidepool::cpu
