// Elementwise operators that are plain loops: functions of libm, bits, whole quotients.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cpu/pointwise.h"
#include "tidepool/backends/cpu/pointwise_loops.h"
#include "tidepool/ndarray/kernel/op_code.h"

namespace tidepool::cpu {
namespace {

template <auto kFunction, typename T>
void Map(const void* const* in, void* out, int64_t n, const LoopParameters&) {
  const T* x = static_cast<const T*>(in[0]);
  auto* z = static_cast<decltype(kFunction(T()))*>(out);
  for (int64_t i = 0; i < n; ++i) z[i] = kFunction(x[i]);
}

template <auto kFunction, typename T>
void MapTwo(const void* const* in, void* out, int64_t n, const LoopParameters&) {
  const T* x = static_cast<const T*>(in[0]);
  const T* y = static_cast<const T*>(in[1]);
  T* z = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) z[i] = static_cast<T>(kFunction(x[i], y[i]));
}

template <auto kFunction>
void RegisterFunction(OpCode op, int work, bool to_bool = false) {
  constexpr PointwiseLoop kLoops[kLoopTypes] = {&Map<kFunction, float>, &Map<kFunction, double>};
  RegisterPointwise(op, kLoops, 1, work, nullptr, to_bool);
}

// Of floats, of integers or of both.
template <auto kFunction>
void RegisterReals(OpCode op, int work) {
  constexpr PointwiseLoop kLoops[kLoopTypes] = {&MapTwo<kFunction, float>, &MapTwo<kFunction, double>};
  RegisterPointwise(op, kLoops, 2, work);
}
template <auto kFunction>
void RegisterWholes(OpCode op, int work) {
  constexpr PointwiseLoop kLoops[kLoopTypes] = {
      nullptr,
      nullptr,
      &MapTwo<kFunction, int8_t>,
      &MapTwo<kFunction, uint8_t>,
      &MapTwo<kFunction, int32_t>,
      &MapTwo<kFunction, int64_t>};
  RegisterPointwise(op, kLoops, 2, work);
}
template <auto kFunction>
void RegisterNumbers(OpCode op, int work) {
  constexpr PointwiseLoop kLoops[kLoopTypes] = {
      &MapTwo<kFunction, float>,   &MapTwo<kFunction, double>,  &MapTwo<kFunction, int8_t>,
      &MapTwo<kFunction, uint8_t>, &MapTwo<kFunction, int32_t>, &MapTwo<kFunction, int64_t>};
  RegisterPointwise(op, kLoops, 2, work);
}

template <typename T>
bool IsMinusOne(T y) {
  return std::is_signed_v<T> && y == static_cast<T>(-1);
}

constexpr auto kFMod = []<typename T>(T x, T y) -> T {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmod(x, y);
  } else {
    return IsMinusOne(y) ? T(0) : static_cast<T>(x % y);
  }
};

// NumPy's floor_divide; the bits of the quotient are those of the next wider type where there is one.
constexpr auto kFloorDivide = []<typename T>(T x, T y) -> T {
  if constexpr (std::is_same_v<T, float>) {
    const double value = x, divisor = y;
    if (divisor == 0) return x / y;
    const double rest = std::fmod(value, divisor);
    double quotient = (value - rest) / divisor;
    if (rest != 0 && (rest < 0) != (divisor < 0)) quotient -= 1;
    return static_cast<float>(quotient == 0 ? std::copysign(0.0, value / divisor) : std::round(quotient));
  } else if constexpr (std::is_same_v<T, double>) {
    if (y == 0) return x / y;
    const double rest = std::fmod(x, y);
    double quotient = (x - rest) / y;
    if (rest != 0 && (rest < 0) != (y < 0)) quotient -= 1;
    return quotient == 0 ? std::copysign(0.0, x / y) : std::round(quotient);
  } else {
    if (IsMinusOne(y)) return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
    const T quotient = static_cast<T>(x / y);
    return x % y != 0 && (x < 0) != (y < 0) ? static_cast<T>(quotient - 1) : quotient;
  }
};

// Counts that are negative or at least the width leave no bit.
constexpr auto kShiftLeft = []<typename T>(T x, T y) -> T {
  return static_cast<uint64_t>(y) < 8 * sizeof(T) ? static_cast<T>(static_cast<uint64_t>(x) << y) : T(0);
};
constexpr auto kShiftRight = []<typename T>(T x, T y) -> T {
  if (static_cast<uint64_t>(y) < 8 * sizeof(T)) return static_cast<T>(x >> y);
  return static_cast<T>(x < 0 ? -1 : 0);
};

const bool registered = [] {
  RegisterFunction<[](auto x) { return std::tan(x); }>(OpCode::kTan, 16);
  RegisterFunction<[](auto x) { return std::asin(x); }>(OpCode::kAsin, 16);
  RegisterFunction<[](auto x) { return std::acos(x); }>(OpCode::kAcos, 16);
  RegisterFunction<[](auto x) { return std::atan(x); }>(OpCode::kAtan, 16);
  RegisterFunction<[](auto x) { return std::sinh(x); }>(OpCode::kSinh, 16);
  RegisterFunction<[](auto x) { return std::cosh(x); }>(OpCode::kCosh, 16);
  RegisterFunction<[](auto x) { return std::asinh(x); }>(OpCode::kAsinh, 16);
  RegisterFunction<[](auto x) { return std::acosh(x); }>(OpCode::kAcosh, 16);
  RegisterFunction<[](auto x) { return std::atanh(x); }>(OpCode::kAtanh, 16);
  RegisterFunction<[](auto x) { return std::log2(x); }>(OpCode::kLog2, 12);
  RegisterFunction<[](auto x) { return std::log10(x); }>(OpCode::kLog10, 12);
  RegisterFunction<[](auto x) { return std::exp2(x); }>(OpCode::kExp2, 12);
  RegisterFunction<[](auto x) { return std::cbrt(x); }>(OpCode::kCbrt, 16);
  RegisterFunction<[](auto x) { return std::trunc(x); }>(OpCode::kTrunc, 1);
  RegisterFunction<[](auto x) { return static_cast<uint8_t>(std::isinf(x) ? 1 : 0); }>(OpCode::kIsInf, 1, true);
  RegisterReals<[](auto x, auto y) { return std::atan2(x, y); }>(OpCode::kAtan2, 20);
  RegisterReals<[](auto x, auto y) { return std::hypot(x, y); }>(OpCode::kHypot, 12);
  RegisterReals<[](auto x, auto y) { return std::copysign(x, y); }>(OpCode::kCopySign, 1);
  RegisterNumbers<kFMod>(OpCode::kFMod, 12);
  RegisterNumbers<kFloorDivide>(OpCode::kFloorDivide, 12);
  RegisterWholes<[](auto x, auto y) { return x & y; }>(OpCode::kBitwiseAnd, 1);
  RegisterWholes<[](auto x, auto y) { return x | y; }>(OpCode::kBitwiseOr, 1);
  RegisterWholes<[](auto x, auto y) { return x ^ y; }>(OpCode::kBitwiseXor, 1);
  RegisterWholes<kShiftLeft>(OpCode::kShiftLeft, 1);
  RegisterWholes<kShiftRight>(OpCode::kShiftRight, 1);
  return true;
}();

}  // namespace
}  // namespace tidepool::cpu
