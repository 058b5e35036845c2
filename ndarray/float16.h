// The two 16-bit floating point types: storage and conversion. Arithmetic happens in float.
//
//   Float16   IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits; largest 65504
//   BFloat16  the upper half of a float: 1 sign, 8 exponent, 7 fraction bits
//
// Conversions to them round to nearest, ties to even; too large becomes infinity, NaN stays NaN.
// From double they round once, not through float.
#ifndef TIDEPOOL_NDARRAY_FLOAT16_H_
#define TIDEPOOL_NDARRAY_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace tidepool {
namespace float16_internal {

// To float, the last bit set when that is not exact: rounding the result to 16 bits is then the
// same as rounding `value` itself ("round to odd").
constexpr float ToOddFloat(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const double size = value < 0 ? -value : value;
  const double rounded = nearest < 0 ? -static_cast<double>(nearest) : nearest;
  if (rounded > size) --bits;  // towards zero; infinity becomes the largest float
  return std::bit_cast<float>(bits | 1);
}

constexpr uint16_t HalfBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00;   // NaN
  if (size >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more
  if (size >= 0x38800000) {                      // 2^-14: a normal number
    const uint32_t odd = size >> 13 & 1;
    return static_cast<uint16_t>(sign | ((size - 0x38000000 + 0xfff + odd) >> 13));
  }
  if (size < 0x33000000) return sign;  // below 2^-25: zero
  // Denormal: units of 2^-24.
  const int shift = 126 - static_cast<int>(size >> 23);
  const uint32_t fraction = (size & 0x7fffff) | 0x800000;
  const uint32_t whole = fraction >> shift, rest = fraction & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  return static_cast<uint16_t>(sign | (whole + (rest > half || (rest == half && (whole & 1)))));
}

constexpr float FromHalfBits(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float size = static_cast<float>(fraction) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(size));
}

constexpr uint16_t BrainBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace float16_internal

struct Float16 {
  uint16_t bits = 0;

  constexpr Float16() = default;
  constexpr explicit Float16(float value) : bits(float16_internal::HalfBits(value)) {}
  constexpr explicit Float16(double value) : Float16(float16_internal::ToOddFloat(value)) {}
  constexpr operator float() const { return float16_internal::FromHalfBits(bits); }  // NOLINT
};

struct BFloat16 {
  uint16_t bits = 0;

  constexpr BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(float16_internal::BrainBits(value)) {}
  constexpr explicit BFloat16(double value) : BFloat16(float16_internal::ToOddFloat(value)) {}
  constexpr operator float() const {  // NOLINT: every value is a float
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_FLOAT16_H_
