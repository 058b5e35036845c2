// Which range of values 8 bits are given, and what they are then.
#include "tidepool/nn/inference/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::nn {
namespace {

double Real(int64_t value, const Quantisation& q) {
  return q.scale * static_cast<double>(value - q.zero_point);
}
int8_t Quantise(double real, const Quantisation& q) {
  return static_cast<int8_t>(
      std::clamp(std::nearbyint(real / q.scale) + q.zero_point, -128.0, 127.0));
}

TEST(ChooseRange, LeavesOutliersOut) {
  std::vector<int64_t> counts(2048, 0);
  for (int i = 1014; i < 1034; ++i) counts[static_cast<size_t>(i)] = 100000;
  counts.front() = counts.back() = 1;
  const ValueRange all = ChooseRange(-1024, 1024, counts, CalibrationMethod::kExtremes, 99);
  EXPECT_EQ(all.low, -1024);
  EXPECT_EQ(all.high, 1024);
  const ValueRange percent =
      ChooseRange(-1024, 1024, counts, CalibrationMethod::kPercentile, 99.99);
  EXPECT_NEAR(percent.low, -10, 1.01);
  EXPECT_NEAR(percent.high, 10, 1.01);
  const ValueRange least =
      ChooseRange(-1024, 1024, counts, CalibrationMethod::kMeanSquaredError, 99.99);
  EXPECT_LT(least.high, 1024);
  EXPECT_GT(least.high, 10);
}

TEST(QuantisationOf, HasZeroExactlyAndBothEnds) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0, 1}, {-1, 1}, {-3, 0.5}, {2, 7}, {-9, -4}, {0, 0}}) {
    const Quantisation q = QuantisationOf(low, high);
    EXPECT_GT(q.scale, 0);
    EXPECT_EQ(Real(Quantise(0, q), q), 0);
    for (const double end : {low, high})
      EXPECT_NEAR(Real(Quantise(end, q), q), end, q.scale) << low << ", " << high;
  }
}

}  // namespace
}  // namespace tidepool::nn
