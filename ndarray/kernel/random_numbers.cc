#include "tidepool/ndarray/kernel/random_numbers.h"

#include <cmath>

namespace tidepool {

UniformOf<double>::UniformOf(double low, double high)
    : low_(low), range_(high - low), last_(std::nextafter(high, low)) {}

double UniformOf<double>::operator()(uint32_t first, uint32_t second) const {
  const double value = std::fma(range_, static_cast<double>(Bits53(first, second)) * 0x1p-53, low_);
  return value < last_ ? value : last_;
}

void NormalPairOf53Bits(const PhiloxWords& words, double mean, double deviation, double out[2]) {
  constexpr double kTwoPi = 6.283185307179586476925;
  const double u = static_cast<double>(Bits53(words.word[0], words.word[1]) + 1) * 0x1p-53;
  const double v = static_cast<double>(Bits53(words.word[2], words.word[3])) * 0x1p-53;
  const double r = std::sqrt(-2 * std::log(u));
  out[0] = std::fma(deviation, r * std::cos(kTwoPi * v), mean);
  out[1] = std::fma(deviation, r * std::sin(kTwoPi * v), mean);
}

uint64_t BernoulliThreshold(double probability) {
  return static_cast<uint64_t>(std::llround(probability * 0x1p32));
}

}  // namespace tidepool
