// Arithmetic of two operands and affine maps. Integers modulo 2^bits; their division truncates.
#include <cmath>
#include <type_traits>

#include "tidepool/backends/reference/element_words.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool::reference {
namespace {

using namespace operator_list;  // NOLINT: the rows' words

bool IsInt64(double value) {
  return value >= -0x1p63 && value < 0x1p63 && value == std::trunc(value);
}

struct ScaleShiftKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    const auto& a = call.attrs<ScaleShiftAttributes>();
    if constexpr (std::is_same_v<T, double>) {
      // One of the two is exact, so the other rounds as it does by itself, and once.
      if (a.shift == 0 || std::abs(a.scale) == 1) {
        return ForEachElement<T, T>(call, [&](T x) { return a.scale * x + a.shift; });
      }
    }
    if constexpr (kIsFloat<T>) {
      ForEachElement<T, T>(call, [&](T x) {
        return Narrow<T>(static_cast<Wide<T>>(a.scale) * Wide<T>(x) +
                         static_cast<Wide<T>>(a.shift));
      });
    } else if (IsInt64(a.scale) && IsInt64(a.shift)) {
      const auto scale = static_cast<uint64_t>(static_cast<int64_t>(a.scale));
      const auto shift = static_cast<uint64_t>(static_cast<int64_t>(a.shift));
      ForEachElement<T, T>(
          call, [&](T x) { return static_cast<T>(static_cast<uint64_t>(x) * scale + shift); });
    } else {
      ForEachElement<T, T>(
          call, [&](T x) { return ConvertElement<T>(a.scale * static_cast<double>(x) + a.shift); });
    }
  }
};

const bool registered = [] {
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddFunctionOfTwo<Name##Formula, types>(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#include "tidepool/ndarray/kernel/operators/bits.inc"
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
#undef TIDEPOOL_OPERATOR
  return RegisterReference<ScaleShiftKernel>(OpCode::kScaleShift, NumberTypes());
}();

}  // namespace
}  // namespace tidepool::reference
