#include "tidepool/ndarray/dtype.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

// Every finite value of a 16-bit type in order, by an independent formula.
template <typename T>
double ValueOf(uint16_t bits);
template <>
double ValueOf<Float16>(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double size = exponent == 0 ? std::ldexp(bits & 1023, -24)
                                    : std::ldexp(1024 + (bits & 1023), exponent - 25);
  return bits & 0x8000 ? -size : size;
}
template <>
double ValueOf<BFloat16>(uint16_t bits) {
  const int exponent = bits >> 7 & 255;
  const double size =
      exponent == 0 ? std::ldexp(bits & 127, -133) : std::ldexp(128 + (bits & 127), exponent - 134);
  return bits & 0x8000 ? -size : size;
}

template <typename T>
void CheckConversions(uint16_t infinity) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    T half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = half;
    if ((bits & 0x7fff) > infinity) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(T(value)))) << bits;
      continue;
    }
    if ((bits & 0x7fff) == infinity) {
      EXPECT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_EQ(value, ValueOf<T>(half.bits)) << bits;
    }
    EXPECT_EQ(T(value).bits, bits);
    EXPECT_EQ(T(static_cast<double>(value)).bits, bits);
  }
  // Between neighbours: below, at and above the middle, from float and from double.
  for (uint16_t bits = 0; bits + 1 < infinity; ++bits) {
    const double low = ValueOf<T>(bits), high = ValueOf<T>(bits + 1), middle = (low + high) / 2;
    const uint16_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const double sign : {1.0, -1.0}) {
      const uint16_t top = sign < 0 ? 0x8000 : 0;
      EXPECT_EQ(T(sign * middle).bits, top | even);
      EXPECT_EQ(T(sign * std::nextafter(middle, 0)).bits, top | bits);
      EXPECT_EQ(T(sign * std::nextafter(middle, HUGE_VAL)).bits, top | (bits + 1));
      EXPECT_EQ(T(static_cast<float>(sign * middle)).bits, top | even);
      EXPECT_EQ(T(std::nextafterf(static_cast<float>(sign * middle), 0)).bits, top | bits);
    }
  }
  // Half a step above the largest is infinity, below it is the largest.
  const double largest = ValueOf<T>(infinity - 1);
  const double beyond = largest + (largest - ValueOf<T>(infinity - 2)) / 2;
  EXPECT_EQ(T(beyond).bits, infinity);
  EXPECT_EQ(T(std::nextafter(beyond, 0)).bits, infinity - 1);
  EXPECT_EQ(T(1e300).bits, infinity);
  EXPECT_EQ(T(-1e300).bits, infinity | 0x8000);
}

TEST(Float16, EveryValueAndEveryMiddleConverts) { CheckConversions<Float16>(0x7c00); }
TEST(BFloat16, EveryValueAndEveryMiddleConverts) { CheckConversions<BFloat16>(0x7f80); }

TEST(DType, NamesAndSizes) {
  const size_t bytes = VisitDType(DType::kBFloat16, [](auto t) { return sizeof(t); });
  EXPECT_EQ(bytes, 2);
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitDType(dtype, [&](auto t) {
      EXPECT_EQ(DTypeBytes(dtype), sizeof(t));
      EXPECT_EQ(DTypeOf<decltype(t)>::value, dtype);
    });
    EXPECT_GT(std::strlen(DTypeName(dtype)), 0);
  }
}

TEST(DType, ConversionsAreDefinedForEveryValue) {
  EXPECT_EQ(ConvertElement<int64_t>(std::nan("")), INT64_MIN);
  EXPECT_EQ(ConvertElement<int64_t>(1e30), INT64_MIN);
  EXPECT_EQ(ConvertElement<int32_t>(-1.9), -1);
  EXPECT_EQ(ConvertElement<int32_t>(4294967299.0), 3);
  EXPECT_EQ(ConvertElement<uint64_t>(1.5e19), 15000000000000000000u);
  EXPECT_EQ(ConvertElement<uint64_t>(0x1p64), uint64_t{1} << 63);
  EXPECT_EQ(ConvertElement<uint64_t>(-1.5f), UINT64_MAX);
  EXPECT_EQ(ConvertElement<uint32_t>(-1.0), UINT32_MAX);
  EXPECT_EQ(ConvertElement<double>(uint64_t{1} << 63), 0x1p63);
  EXPECT_EQ(ConvertElement<uint8_t>(-1.0f), 255);
  EXPECT_EQ(ConvertElement<uint8_t>(int64_t{257}), 1);
  EXPECT_EQ(ConvertElement<int8_t>(int32_t{200}), -56);
  EXPECT_TRUE(ConvertElement<bool>(std::nanf("")));
  EXPECT_TRUE(ConvertElement<bool>(0.25));
  EXPECT_FALSE(ConvertElement<bool>(-0.0f));
  EXPECT_EQ(ConvertElement<float>(true), 1.0f);
  EXPECT_EQ(static_cast<float>(ConvertElement<Float16>(int64_t{65519})), 65504.0f);
  EXPECT_TRUE(std::isinf(static_cast<float>(ConvertElement<Float16>(int64_t{65520}))));
  EXPECT_EQ(ConvertElement<int8_t>(Float16(-3.5f)), -3);
  EXPECT_EQ(static_cast<float>(ConvertElement<BFloat16>(Float16(1.0f))), 1.0f);
}

// A double would be the middle between two of 16 bits, which the integer is not.
TEST(DType, IntegersBeyondDoublesAreRoundedOnce) {
  const auto brain = [](auto value) { return static_cast<float>(ConvertElement<BFloat16>(value)); };
  constexpr int64_t kMiddle = 0x4040000000000000;
  EXPECT_EQ(brain(kMiddle), 0x1p62f);
  EXPECT_EQ(brain(kMiddle + 1), 0x1.02p62f);
  EXPECT_EQ(brain(-kMiddle - 1), -0x1.02p62f);
  EXPECT_EQ(brain(kMiddle - 1), 0x1p62f);
  EXPECT_EQ(brain(2 * uint64_t{kMiddle} + 1), 0x1.02p63f);
  EXPECT_EQ(brain(INT64_MIN), -0x1p63f);
  EXPECT_EQ(brain(INT64_MAX), 0x1p63f);
  EXPECT_EQ(brain(UINT64_MAX), 0x1p64f);
}

// Sampled values: the promoted type holds them.
TEST(DType, PromotionHoldsTheValuesOfBoth) {
  for (int a = 0; a < kDTypes; ++a) {
    for (int b = 0; b < kDTypes; ++b) {
      const DType x = static_cast<DType>(a), y = static_cast<DType>(b);
      const DType z = PromoteTypes(x, y);
      EXPECT_EQ(z, PromoteTypes(y, x));
      if (x != z && IsInteger(x) && DTypeBytes(x) == 8 && IsFloating(z))
        continue;  // 63 and 64 bits do not fit any
      VisitDType(x, [&](auto from) {
        using From = decltype(from);
        VisitDType(z, [&](auto to) {
          std::mt19937_64 random(17);
          for (int i = 0; i < 2000; ++i) {
            From value;
            if constexpr (std::is_same_v<From, bool>) {
              value = random() % 2 == 1;
            } else {
              const uint64_t bits = random();
              std::memcpy(static_cast<void*>(&value), &bits, sizeof(value));
            }
            if (IsFloating(x) && std::isnan(static_cast<double>(value))) continue;
            const From back = ConvertElement<From>(ConvertElement<decltype(to)>(value));
            EXPECT_EQ(std::memcmp(&back, &value, sizeof(value)), 0)
                << DTypeName(x) << " in " << DTypeName(z);
          }
        });
      });
    }
  }
  EXPECT_EQ(PromoteTypes(DType::kInt8, DType::kUInt8), DType::kInt16);
  EXPECT_EQ(PromoteTypes(DType::kInt16, DType::kUInt16), DType::kInt32);
  EXPECT_EQ(PromoteTypes(DType::kUInt32, DType::kInt8), DType::kInt64);
  EXPECT_EQ(PromoteTypes(DType::kUInt64, DType::kInt64), DType::kFloat64);
  EXPECT_EQ(PromoteTypes(DType::kUInt64, DType::kUInt16), DType::kUInt64);
  EXPECT_EQ(PromoteTypes(DType::kInt16, DType::kFloat16), DType::kFloat32);
  EXPECT_EQ(PromoteTypes(DType::kInt16, DType::kFloat32), DType::kFloat32);
  EXPECT_EQ(PromoteTypes(DType::kFloat16, DType::kBFloat16), DType::kFloat32);
  EXPECT_EQ(PromoteTypes(DType::kFloat32, DType::kInt32), DType::kFloat64);
  EXPECT_EQ(PromoteTypes(DType::kFloat16, DType::kUInt8), DType::kFloat16);
  EXPECT_EQ(PromoteTypes(DType::kBool, DType::kBFloat16), DType::kBFloat16);
  // Of all at once: i8 and u8 first would be i16, which f16 does not hold.
  EXPECT_EQ(PromoteTypes({DType::kInt8, DType::kUInt8, DType::kFloat16}), DType::kFloat16);
}

}  // namespace
}  // namespace tidepool
