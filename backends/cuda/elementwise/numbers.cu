// Functions of numbers that keep their type, two operands' bits, and what takes parameters.
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/elementwise/parameters.h"
#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"

namespace tidepool::cuda {
namespace {

using namespace operator_list;  // NOLINT: the rows' words

template <typename T>
struct ClipFunction {
  explicit ClipFunction(const KernelCall& call)
      : low(ToCompute(ClipBound<T>(call.attrs<ClipAttributes>().low))),
        high(ToCompute(ClipBound<T>(call.attrs<ClipAttributes>().high))) {}
  __device__ Compute<T> operator()(Compute<T> x) const { return Clipped(x, low, high); }

  Compute<T> low, high;
};

bool AddClip() {
  ForEachType(NumberTypes(), [](auto t) {
    using T = decltype(t);
    AddKernel(OpCode::kClip, DTypeOf<T>::value, &RunFunction<ClipFunction<T>, T, T>, true);
  });
  return true;
}

struct ScaleShiftFunction {
  explicit ScaleShiftFunction(const KernelCall& call)
      : scale(call.attrs<ScaleShiftAttributes>().scale),
        shift(call.attrs<ScaleShiftAttributes>().shift) {
    auto is_whole = [](double value) {
      return value >= -0x1p63 && value < 0x1p63 && value == trunc(value);
    };
    whole = is_whole(scale) && is_whole(shift);
    if (whole) {
      whole_scale = static_cast<uint64_t>(static_cast<int64_t>(scale));
      whole_shift = static_cast<uint64_t>(static_cast<int64_t>(shift));
    }
  }
  template <typename T>
  __device__ T operator()(T x) const {
    if constexpr (!std::is_integral_v<T>) {
      return ScaleAndShift(x, scale, shift);
    } else if (whole) {
      return static_cast<T>(static_cast<uint64_t>(x) * whole_scale + whole_shift);
    } else {
      // Two roundings, as the reference.
      return ConvertElement<T>(__dadd_rn(__dmul_rn(scale, static_cast<double>(x)), shift));
    }
  }

  double scale, shift;
  bool whole;
  uint64_t whole_scale = 0, whole_shift = 0;
};

const bool registered = [] {
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddFunction<Name##Formula, types>(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/number_functions.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddFunctionOfTwo<Name##Formula, types>(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/bits.inc"
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
#undef TIDEPOOL_OPERATOR
  AddFunction<ScaleShiftFunction, kNumbers>(OpCode::kScaleShift);
  return AddClip();
}();

}  // namespace
}  // namespace tidepool::cuda
