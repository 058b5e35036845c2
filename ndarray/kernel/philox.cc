#include "tidepool/ndarray/kernel/philox.h"

#include <cmath>

namespace tidepool {
namespace {

float Root(float x) { return std::sqrt(x); }

#define TIDEPOOL_NORMAL_FUNCTION inline
#include "tidepool/ndarray/kernel/normal_formula.inc"

}  // namespace

void NormalPair(uint32_t first, uint32_t second, double mean, double deviation, double out[2]) {
  const UnitNormals unit = UnitNormalsOf(first, second);
  out[0] = mean + deviation * unit.first;
  out[1] = mean + deviation * unit.second;
}

void NormalPair(uint32_t first, uint32_t second, double mean, double deviation, float out[2]) {
  double pair[2];
  NormalPair(first, second, mean, deviation, pair);
  out[0] = static_cast<float>(pair[0]);
  out[1] = static_cast<float>(pair[1]);
}

}  // namespace tidepool
