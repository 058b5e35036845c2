// Statistics of batches that are hard for an algorithm in one pass.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/normalization.h"

namespace tidepool {
namespace {

constexpr int64_t kChannels = 2;

void ExpectStatistics(const std::vector<float>& x) {
  const auto rows = static_cast<int64_t>(x.size()) / kChannels;
  const Normalized normalized = BatchNorm(FromValues(absl::Span<const float>(x), {rows, kChannels}),
                                          Ones({kChannels}), Zeros({kChannels}));
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    double mean = 0, variance = 0;
    for (int64_t row = 0; row < rows; ++row) mean += x[row * kChannels + channel];
    mean /= static_cast<double>(rows);
    for (int64_t row = 0; row < rows; ++row) {
      const double d = x[row * kChannels + channel] - mean;
      variance += d * d;
    }
    variance = variance / static_cast<double>(rows) + NormalizationAttributes().epsilon;
    const double found = normalized.inverse_deviation.ToVector<float>()[channel];
    EXPECT_NEAR(normalized.mean.ToVector<float>()[channel], mean,
                2e-7 * std::sqrt(variance) + 1e-7 * std::abs(mean));
    EXPECT_NEAR(found * std::sqrt(variance), 1, 3e-7);
  }
}

TEST(BatchNorm, AMeanFarFromZero) {
  std::mt19937 random(1);
  std::normal_distribution<float> draw(1e4f, 1.0f);
  for (const int64_t rows : {100, 1024, 70'000}) {
    std::vector<float> x(static_cast<size_t>(rows * kChannels));
    for (float& value : x) value = draw(random);
    ExpectStatistics(x);
  }
}

// Where some rows are looked at first, those are others than nearly all.
TEST(BatchNorm, RowsAtEvenDistancesAreFarFromTheMean) {
  std::mt19937 random(1);
  std::normal_distribution<float> draw(1e4f, 1.0f);
  constexpr int64_t kRows = 1 << 20;
  std::vector<float> x(kRows * kChannels);
  for (int64_t i = 0; i < kRows * kChannels; ++i) {
    const float value = draw(random);
    x[i] = i % kChannels == 1 && i / kChannels % (kRows / 64) == 0 ? 0 : value;
  }
  ExpectStatistics(x);
}

TEST(BatchNorm, EqualElementsHaveNoVariance) {
  ExpectStatistics(std::vector<float>(3000 * kChannels, 0.1f));
}

}  // namespace
}  // namespace tidepool
