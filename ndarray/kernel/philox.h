// Random numbers by counter: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011). Element i of an array is a pure function of (seed, stream, i), so
// any device, order and number of threads gives the same values. Every backend takes its numbers
// here.
//
//   block = i / 4, word = i % 4
//   key = (seed low, seed high)
//   counter = (block low, block high, stream low, stream high)      halves of 32 bits
//
// Threads: pure functions.
#ifndef TIDEPOOL_NDARRAY_KERNEL_PHILOX_H_
#define TIDEPOOL_NDARRAY_KERNEL_PHILOX_H_

#include <cmath>
#include <cstdint>

namespace tidepool {

struct PhiloxWords {
  uint32_t word[4];
};

constexpr PhiloxWords Philox(uint64_t seed, uint64_t stream, uint64_t block) {
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

// [low, high): low + (high - low) * u with u = (word >> 8) * 2^-24. low, high and their difference
// are floats; the product is exact in double, so that fused multiply-adds change nothing, and the
// sum is rounded to float once. A sum that rounds up to `high` becomes the float below it.
class UniformTransform {
 public:
  UniformTransform(double low, double high)
      : low_(static_cast<float>(low)),
        range_(static_cast<float>(high) - static_cast<float>(low)),
        last_(std::nextafterf(static_cast<float>(high), static_cast<float>(low))) {}

  constexpr float operator()(uint32_t word) const {
    const double u = static_cast<double>(word >> 8) * 0x1p-24;
    const float value = static_cast<float>(static_cast<double>(low_) + range_ * u);
    return value < last_ ? value : last_;
  }

 private:
  float low_;
  double range_;
  float last_;
};

// Elements (0, 1) of a block from words (0, 1), and (2, 3) from (2, 3): mean + deviation * z in double, for z as
// normal_formula.inc has it, which other backends include. Compiled once, so that all callers agree to the bit.
void NormalPair(uint32_t first, uint32_t second, double mean, double deviation, double out[2]);
// Rounded to float.
void NormalPair(uint32_t first, uint32_t second, double mean, double deviation, float out[2]);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_PHILOX_H_
