// The loops of both instruction sets against double precision.
#include "tidepool/backends/cpu/nn_loops.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/instruction_set.h"
#include "tidepool/ndarray/float16.h"

namespace tidepool::cpu {
namespace {

class NnLoopsTest : public ::testing::TestWithParam<const NnLoops*> {
 protected:
  static bool Runs() {
#if defined(__x86_64__)
    const InstructionSet best = BestInstructionSet();
    return GetParam() == &kPortableNnLoops ||
           (GetParam() == &kAvx2NnLoops && best >= InstructionSet::kAvx2) ||
           best >= InstructionSet::kAvx512;
#else
    return true;
#endif
  }
  void SetUp() override {
    if (!Runs()) GTEST_SKIP() << "not on this processor";
  }
  const NnLoops& loops() { return *GetParam(); }
  std::mt19937 random_{20};
  std::vector<float> Values(int64_t n, float low, float high) {
    std::vector<float> values(n);
    std::uniform_real_distribution<float> draw(low, high);
    for (float& value : values) value = draw(random_);
    return values;
  }
};

// The exponential, seen through softmax's gradient of the logarithm: dx = 0 - exp(z) * 1.
TEST_P(NnLoopsTest, ExponentialToOneUlp) {
  double worst = 0;
  for (double x = -103.5; x < 88.7; x += 0.0137) {
    const float z[2] = {static_cast<float>(x), 0}, dz[2] = {1, 0};
    float dx[2];
    loops().log_softmax_grad(z, dz, dx, 2, 1, 1);
    const double exact = std::exp(static_cast<double>(z[0]));
    const double found = 1.0 - dx[0];
    // dz - exp(z) is exact where exp(z) is large; below, one ulp of 1 remains.
    worst = std::max(worst, std::abs(found - exact) / std::max(exact, 1.0));
  }
  std::printf("largest relative error %.3g\n", worst);
  EXPECT_LT(worst, 1.2e-7);
}

TEST_P(NnLoopsTest, ExponentialAtTheEnds) {
  // Softmax of (0, x): x's share is exp(x) / (1 + exp(x)).
  for (const float x : {-87.0f, -100.0f, -103.0f, -200.0f, -INFINITY}) {
    const float in[2] = {0, x};
    float out[2];
    loops().softmax(in, out, 2, 1, 1);
    EXPECT_EQ(out[0], 1.0f);
    EXPECT_NEAR(out[1], std::exp(static_cast<double>(x)), 2e-7 * std::exp(x) + 1.5e-45) << x;
  }
  const float nan[3] = {1, NAN, 2};
  float out[3];
  loops().softmax(nan, out, 3, 1, 1);
  for (const float value : out) EXPECT_TRUE(std::isnan(value));
}

TEST_P(NnLoopsTest, SoftmaxOfRowsAndColumnsAgree) {
  for (const int64_t n : {1, 2, 15, 16, 17, 33, 100, 5000}) {
    const std::vector<float> x = Values(n * 70, -5, 5);
    std::vector<float> z(x.size()), row(n), out(n);
    loops().softmax(x.data(), z.data(), n, 70, 70);
    for (const int64_t column : {0, 5, 69}) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        row[i] = x[i * 70 + column];
        sum += std::exp(static_cast<double>(row[i]));
      }
      loops().softmax(row.data(), out.data(), n, 1, 1);
      for (int64_t i = 0; i < n; ++i) {
        const double exact = std::exp(static_cast<double>(row[i])) / sum;
        EXPECT_NEAR(out[i], exact, 2e-6 * exact);
        EXPECT_NEAR(z[i * 70 + column], exact, 1e-5 * exact);
      }
    }
  }
}

// An exponential of what is larger than the largest that was found would overflow.
TEST_P(NnLoopsTest, SoftmaxFindsTheLargestWhereverItIs) {
  for (int64_t n = 1; n <= 100; ++n) {
    std::vector<float> x(n), out(n);
    for (int64_t at = 0; at < n; ++at) {
      x[at] = 300;
      loops().softmax(x.data(), out.data(), n, 1, 1);
      x[at] = 0;
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(out[i], i == at ? 1 : 0) << i << " of " << n << ", the largest is " << at;
    }
  }
}

TEST_P(NnLoopsTest, GradientsOfSoftmaxOfSeveralRowsAreThoseOfEach) {
  for (const int64_t n : {1, 31, 33, 64, 1000, 5000}) {
    const int64_t rows = 37;
    const std::vector<float> z = Values(n * rows, 0, 1), dz = Values(n * rows, -1, 1);
    std::vector<float> dx = dz, one(n);  // written over an operand
    loops().softmax_grad_rows(z.data(), dx.data(), dx.data(), n, rows);
    for (int64_t row = 0; row < rows; ++row) {
      loops().softmax_grad(z.data() + row * n, dz.data() + row * n, one.data(), n, 1, 1);
      EXPECT_TRUE(std::equal(one.begin(), one.end(), dx.begin() + row * n)) << n << ", row " << row;
    }
  }
}

TEST_P(NnLoopsTest, BinaryCrossEntropyIsRightForSureAnswers) {
  for (const float x : {-80.0f, -20.0f, -3.0f, -1e-3f, 0.0f, 0.5f, 7.0f, 30.0f}) {
    const float target = 0;
    const double exact = std::max<double>(x, 0) + std::log1p(std::exp(-std::abs(double{x})));
    EXPECT_NEAR(loops().binary_cross_entropy(&x, &target, 1), exact, 4e-7 * exact) << x;
  }
}

TEST_P(NnLoopsTest, MomentsOfALargeMean) {
  for (const int64_t n : {1, 2, 31, 1000, 20000}) {
    std::vector<float> x(n);
    std::normal_distribution<float> draw(1e4f, 1.0f);
    for (float& value : x) value = draw(random_);
    double exact_mean = 0, exact_variance = 0, mean, variance;
    for (const float value : x) exact_mean += value;
    exact_mean /= n;
    for (const float value : x) exact_variance += (value - exact_mean) * (value - exact_mean);
    exact_variance /= n;
    loops().row_moments(x.data(), n, &mean, &variance);
    EXPECT_NEAR(mean, exact_mean, 1e-6 * std::sqrt(exact_variance) + 1e-9) << n;
    EXPECT_NEAR(variance, exact_variance, 2e-6 * exact_variance) << n;
  }
}

// The mean of the first elements is no center for the others.
TEST_P(NnLoopsTest, MomentsOfARowThatBeginsFarFromItsMean) {
  constexpr int64_t kCount = 20000;
  std::vector<float> x(kCount);
  std::normal_distribution<float> draw(1e4f, 1.0f);
  for (int64_t i = 0; i < kCount; ++i) x[i] = i < 16 ? 0 : draw(random_);
  double exact_mean = 0, exact_variance = 0, mean, variance;
  for (const float value : x) exact_mean += value;
  exact_mean /= kCount;
  for (const float value : x) exact_variance += (value - exact_mean) * (value - exact_mean);
  exact_variance /= kCount;
  loops().row_moments(x.data(), kCount, &mean, &variance);
  EXPECT_NEAR(mean, exact_mean, 1e-6 * std::sqrt(exact_variance));
  EXPECT_NEAR(variance, exact_variance, 1e-6 * exact_variance);
}

TEST_P(NnLoopsTest, GradientsOfRowsTogetherAreThoseOfEach) {
  constexpr int64_t kRows = 5, kWidth = 77;
  const std::vector<float> x = Values(kRows * kWidth, -2, 2), dz = Values(kRows * kWidth, -1, 1);
  const std::vector<float> scale = Values(kWidth, 0, 2), means = Values(kRows, -1, 1),
                           inverses = Values(kRows, 0.5, 2);
  struct Gradients {
    std::vector<float> dx = std::vector<float>(kRows * kWidth), dscale = std::vector<float>(kWidth),
                       dshift = std::vector<float>(kWidth);
    bool operator==(const Gradients&) const = default;
  };
  for (const bool with_mean : {true, false}) {
    const auto run = [&](Gradients* g, int64_t row, int64_t rows) {
      const int64_t at = row * kWidth;
      if (with_mean) {
        loops().row_norm_grad(&x[at], &dz[at], scale.data(), &means[row], &inverses[row],
                              &g->dx[at], g->dscale.data(), g->dshift.data(), kWidth, rows);
      } else {
        loops().row_rms_grad(&x[at], &dz[at], scale.data(), &inverses[row], &g->dx[at],
                             g->dscale.data(), kWidth, rows);
      }
    };
    Gradients together, each;
    run(&together, 0, kRows);
    for (int64_t row = 0; row < kRows; ++row) run(&each, row, 1);
    EXPECT_EQ(together, each);
  }
}

TEST_P(NnLoopsTest, ColumnSumsOfAnyWidth) {
  for (const int64_t wide : {1, 5, 15, 16, 31, 32, 33, 64, 79, 96, 100}) {
    for (const int64_t count : {int64_t{0}, wide, 3 * wide + wide / 2, 200 * wide + 1}) {
      const std::vector<float> x = Values(count, -1, 1), center = Values(wide, -1, 1);
      std::vector<double> sums(wide), squares(wide), exact_sums(wide), exact_squares(wide);
      loops().column_moments(x.data(), center.data(), count, wide, sums.data(), squares.data());
      for (int64_t i = 0; i < count; ++i) {
        const double d = static_cast<double>(x[i]) - center[i % wide];
        exact_sums[i % wide] += d;
        exact_squares[i % wide] += d * d;
      }
      for (int64_t i = 0; i < wide; ++i) {
        EXPECT_NEAR(sums[i], exact_sums[i], 1e-4) << wide << " " << count;
        EXPECT_NEAR(squares[i], exact_squares[i], 1e-4) << wide << " " << count;
      }
    }
  }
}

TEST_P(NnLoopsTest, SixteenBitFloatsAsTheTypesConvertThem) {
  std::vector<uint16_t> bits(1 << 16), back(1 << 16);
  std::vector<float> halves(1 << 16), brains(1 << 16);
  for (int i = 0; i < 1 << 16; ++i) bits[i] = static_cast<uint16_t>(i);
  loops().half_to_float(bits.data(), halves.data(), 1 << 16);
  loops().brain_to_float(bits.data(), brains.data(), 1 << 16);
  for (int i = 0; i < 1 << 16; ++i) {
    Float16 half;
    half.bits = bits[i];
    BFloat16 brain;
    brain.bits = bits[i];
    ASSERT_EQ(std::bit_cast<uint32_t>(halves[i]), std::bit_cast<uint32_t>(float{half})) << i;
    ASSERT_EQ(std::bit_cast<uint32_t>(brains[i]), std::bit_cast<uint32_t>(float{brain})) << i;
  }
  // Every upper half of a float's bits, with lower halves that round up, down, to even, and at random.
  std::vector<float> floats(1 << 16);
  for (const uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u,
                             0xffffu, static_cast<uint32_t>(random_() & 0xffff)}) {
    for (uint32_t i = 0; i < 1 << 16; ++i) floats[i] = std::bit_cast<float>(i << 16 | low);
    loops().float_to_half(floats.data(), back.data(), 1 << 16);
    for (int i = 0; i < 1 << 16; ++i) ASSERT_EQ(back[i], Float16(floats[i]).bits) << floats[i];
    loops().float_to_brain(floats.data(), back.data(), 1 << 16);
    for (int i = 0; i < 1 << 16; ++i) ASSERT_EQ(back[i], BFloat16(floats[i]).bits) << floats[i];
  }
}

INSTANTIATE_TEST_SUITE_P(All, NnLoopsTest,
                         ::testing::Values(&kPortableNnLoops
#if defined(__x86_64__)
                                           ,
                                           &kAvx2NnLoops, &kAvx512NnLoops
#endif
                                           ));

}  // namespace
}  // namespace tidepool::cpu
