// How numbers of each kind come from Philox words (philox.h). Every backend takes its numbers here or
// computes the same. `block` and `word` are those of philox.h.
//
//   uniform, normal   f32: philox.h. f16, bf16: the f32 number for bounds (mean, deviation: in
//                     double) of the type, rounded to it; a uniform number that rounds to `high`
//                     becomes the number below.
//   uniform f64       element i: block i / 2, words a = 2 (i % 2) and a + 1;
//                     u = ((word a >> 5) * 2^26 + (word (a + 1) >> 6)) * 2^-53;
//                     fma(high - low, u, low), the number below `high` if that is not below it
//   normal f64        elements (2 b, 2 b + 1): block b; Box and Muller in double with
//                     u = (53 bits of words 0 and 1, + 1) * 2^-53, v = 53 bits of words 2 and 3
//   bernoulli         element i: block i / 4, word i % 4; one where word < round(p * 2^32): p is
//                     rounded to a multiple of 2^-32. Dropout drops the ones for p = rate.
//   integers i32      element i: block i / 2, words a = 2 (i % 2) and a + 1;
//                     x = word a * 2^32 + word (a + 1); low + floor(x * (high - low) / 2^64).
//                     Each number's probability is within 2^-64 of the others': of 2^32 numbers
//                     none is more likely than another by more than 2^-32 of it.
//   integers i64      element i: block i; x of 128 bits, word 0 the highest; the same with 2^128
//   permutation       Fisher and Yates' shuffle as by Durstenfeld (1964): 0 .. n - 1 in order, then
//                     for i = n - 1 .. 1 places i and floor(x * (i + 1) / 2^64) change, with x of
//                     element i as for i32
//
// Threads: pure functions.
#ifndef TIDEPOOL_NDARRAY_KERNEL_RANDOM_NUMBERS_H_
#define TIDEPOOL_NDARRAY_KERNEL_RANDOM_NUMBERS_H_

#include <cstdint>
#include <type_traits>

#include "tidepool/ndarray/float16.h"
#include "tidepool/ndarray/kernel/philox.h"

namespace tidepool {

// Of 53 and 64 bits.
constexpr uint64_t Bits53(uint32_t first, uint32_t second) {
  return (uint64_t{first} >> 5) << 26 | second >> 6;
}
constexpr uint64_t Bits64(uint32_t first, uint32_t second) {
  return uint64_t{first} << 32 | second;
}

// Uniform numbers of a type from a word, and of f64 from two.
template <typename T>
class UniformOf {
 public:
  UniformOf(double low, double high)
      : high_(static_cast<float>(T(high))), uniform_(static_cast<float>(T(low)), high_) {
    const T end(high);
    // The next number towards zero, or away from it below zero.
    below_ = end;
    if (static_cast<float>(T(low)) < high_) {
      if (high_ > 0) {
        below_.bits = static_cast<uint16_t>(end.bits - 1);
      } else {
        below_.bits = high_ == 0 ? uint16_t{0x8001} : static_cast<uint16_t>(end.bits + 1);
      }
    }
  }
  constexpr T operator()(uint32_t word) const {
    const T value(uniform_(word));
    return static_cast<float>(value) < high_ ? value : below_;
  }

 private:
  float high_;
  UniformTransform uniform_;
  T below_;
};
template <>
class UniformOf<float> : public UniformTransform {
 public:
  using UniformTransform::UniformTransform;
};
template <>
class UniformOf<double> {
 public:
  UniformOf(double low, double high);
  double operator()(uint32_t first, uint32_t second) const;

 private:
  double low_, range_, last_;
};

// Elements (2 b, 2 b + 1) of normal f64 numbers.
void NormalPairOf53Bits(const PhiloxWords& words, double mean, double deviation, double out[2]);

// Words below it are ones. 2^32: all.
uint64_t BernoulliThreshold(double probability);

// floor(x * count / 2^64), for x of 64 bits.
constexpr uint64_t Below(uint64_t count, uint64_t x) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(x) * count >> 64);
}
// floor(x * count / 2^128), for x of 128 bits.
constexpr uint64_t Below(uint64_t count, uint64_t high, uint64_t low) {
  const unsigned __int128 carried = static_cast<unsigned __int128>(low) * count >> 64;
  return static_cast<uint64_t>((static_cast<unsigned __int128>(high) * count + carried) >> 64);
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_RANDOM_NUMBERS_H_
