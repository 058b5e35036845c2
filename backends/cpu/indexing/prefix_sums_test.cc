// Every form beside plain sums; the contract test runs them on whole operators.
#include "tidepool/backends/cpu/indexing/prefix_sums.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::cpu {
namespace {

template <typename T>
class PrefixSums : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return;
#endif
    GTEST_SKIP() << "no AVX2";
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(PrefixSums, Types);

#if defined(__x86_64__)
TYPED_TEST(PrefixSums, EveryForm) {
  using T = TypeParam;
  constexpr uint64_t kSeed = 20240229;
  std::mt19937_64 random(kSeed);
  for (int64_t n = 0; n < 70; ++n) {
    std::vector<T> x(n);
    // Whole numbers: sums are exact in any order, even far from zero.
    for (T& value : x) value = static_cast<T>(static_cast<int64_t>(random() % 2001) - 1000);
    for (const bool reverse : {false, true}) {
      for (const bool exclusive : {false, true}) {
        for (const bool in_place : {false, true}) {
          std::vector<T> copy = x, z(n, -1);
          std::vector<T>& out = in_place ? copy : z;
          const int64_t first = reverse ? n - 1 : 0, sign = reverse ? -1 : 1;
          double sum = 5;
          const int64_t done =
              Avx2PrefixSums(copy.data() + first, out.data() + first, n, reverse, exclusive, &sum);
          ASSERT_LE(done, n);
          ASSERT_GT(done, n - 8);
          double expected = 5;
          for (int64_t i = 0; i < done; ++i) {
            const double before = expected;
            expected += x[first + i * sign];
            ASSERT_EQ(out[first + i * sign], static_cast<T>(exclusive ? before : expected))
                << "element " << i << " of " << n << ", reverse " << reverse << ", seed " << kSeed;
          }
          EXPECT_EQ(sum, expected);
          for (int64_t i = done; i < n && !in_place; ++i) EXPECT_EQ(z[first + i * sign], -1);
        }
      }
    }
  }
}

TYPED_TEST(PrefixSums, InfinitiesAndNanReachWhatComesAfterThemAlone) {
  using T = TypeParam;
  std::vector<T> x(24, 1), z(24);
  x[10] = std::numeric_limits<T>::infinity();
  x[19] = -x[10];
  double sum = 0;
  ASSERT_EQ(Avx2PrefixSums(x.data(), z.data(), 24, false, false, &sum), 24);
  for (int i = 0; i < 24; ++i) {
    const T expected = i < 10 ? static_cast<T>(i + 1) : x[10];
    EXPECT_TRUE(i < 19 ? z[i] == expected : std::isnan(z[i])) << i;
  }
  ASSERT_EQ(Avx2PrefixSums(x.data() + 23, z.data() + 23, 24, true, true, &(sum = 0)), 24);
  for (int i = 19; i < 24; ++i) EXPECT_EQ(z[i], 23 - i) << i;
  for (int i = 10; i < 19; ++i) EXPECT_EQ(z[i], x[19]) << i;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(std::isnan(z[i])) << i;
}
#endif

}  // namespace
}  // namespace tidepool::cpu
