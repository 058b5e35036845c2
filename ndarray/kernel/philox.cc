#include "tidepool/ndarray/kernel/philox.h"

#include <cmath>

namespace tidepool {

void NormalPair(uint32_t first, uint32_t second, double mean, double deviation, double out[2]) {
  constexpr double kTwoPi = 6.283185307179586476925;
  const double u = (static_cast<double>(first) + 1) * 0x1p-32;
  const double v = static_cast<double>(second) * 0x1p-32;
  const double r = std::sqrt(-2 * std::log(u));
  out[0] = mean + deviation * (r * std::cos(kTwoPi * v));
  out[1] = mean + deviation * (r * std::sin(kTwoPi * v));
}

void NormalPair(uint32_t first, uint32_t second, double mean, double deviation, float out[2]) {
  double pair[2];
  NormalPair(first, second, mean, deviation, pair);
  out[0] = static_cast<float>(pair[0]);
  out[1] = static_cast<float>(pair[1]);
}

}  // namespace tidepool
