// Arithmetic of two operands, every second operator of operators/arithmetic.inc from TIDEPOOL_PART on. Included by one
// source for each part.
#ifndef TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_ARITHMETIC_PART_H_
#define TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_ARITHMETIC_PART_H_

#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/backends/cuda/framework/math.h"
#include "tidepool/backends/cuda/framework/value_fault.h"

namespace tidepool::cuda {
namespace {

using namespace operator_list;  // NOLINT: the rows' words

enum {
#define TIDEPOOL_OPERATOR(Name, ...) kPlaceOf##Name,
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#undef TIDEPOOL_OPERATOR
};

// Of integers, with a second operand that there may be no result for: 0 then, and a fault.
template <typename Formula, bool kOfPower>
struct CheckedFunction {
  explicit CheckedFunction(const KernelCall& call) : check(ValueCheckOf(call, 0)) {}
  template <typename T>
  __device__ T operator()(T x, T y) const {
    bool is_refused = y == T(0);
    if constexpr (kOfPower) is_refused = std::is_signed_v<T> && static_cast<int64_t>(y) < 0;
    if (is_refused) {
      check.Report(0, static_cast<int64_t>(y));
      return T(0);
    }
    return Formula()(x, y);
  }
  ValueCheck check;
};

constexpr bool IsChecked(OpCode op) {
  return op == OpCode::kDivide || op == OpCode::kPower || op == OpCode::kRemainder ||
         op == OpCode::kFMod || op == OpCode::kFloorDivide;
}

template <int kPlace, OpCode kOp, typename Formula, DTypeSet kTypes>
void AddOfPart() {
  if constexpr (kPlace % 2 != TIDEPOOL_PART) {
    return;
  } else if constexpr (IsChecked(kOp)) {
    AddFunctionOfTwo<Formula, kTypes & kFloats>(kOp);
    AddFunctionOfTwo<CheckedFunction<Formula, kOp == OpCode::kPower>, kTypes & ~kFloats>(kOp);
  } else {
    AddFunctionOfTwo<Formula, kTypes>(kOp);
  }
}

const bool registered = [] {
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddOfPart<kPlaceOf##Name, OpCode::k##Name, Name##Formula, types>();
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#undef TIDEPOOL_OPERATOR
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_ARITHMETIC_PART_H_
