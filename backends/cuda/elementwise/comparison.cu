// Comparisons, logic, predicates and choice. Nothing is equal to NaN, less or greater.
#include <cstdint>

#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/backends/cuda/framework/math.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {
namespace {

using namespace operator_list;  // NOLINT: the rows' words

// Moves elements as they are.
struct WhereFunction {
  template <typename T>
  __device__ T operator()(bool condition, T x, T y) const {
    return condition ? x : y;
  }
};

// A relation for the types of its row; those below take fewer kernels.
template <typename Formula, DTypeSet kTypes>
struct Relation {
  static bool Add(OpCode op) { return AddRelation<Formula, kTypes>(op); }
};

// x > y is y < x: the kernels of the other.
template <typename Function, typename T>
void RunSwapped(const KernelCall& call) {
  const TensorRef swapped[2] = {call.inputs[1], call.inputs[0]};
  KernelCall other = call;
  other.inputs = swapped;
  RunPointwise<bool, T, T>(other, Function());
}
template <typename Formula, DTypeSet kTypes>
struct SwappedRelation {
  static bool Add(OpCode op) {
    ForEachTypeOf<kTypes>([op](auto t) {
      using T = decltype(t);
      AddKernel(op, DTypeOf<T>::value, &RunSwapped<Formula, T>, true);
    });
    return true;
  }
};
template <DTypeSet kTypes>
struct Relation<GreaterFormula, kTypes> : SwappedRelation<LessFormula, kTypes> {};
template <DTypeSet kTypes>
struct Relation<GreaterEqualFormula, kTypes> : SwappedRelation<LessEqualFormula, kTypes> {};

// Integers and bool are equal when their bits are: one kernel for each width.
template <typename Formula>
struct Equality {
  static bool Add(OpCode op) {
    AddRelation<Formula, kFloats>(op);
    for (DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt32, DType::kUInt32, DType::kInt64,
                        DType::kUInt64, DType::kBool}) {
      VisitBits(dtype, [&](auto bits) {
        using T = decltype(bits);
        if constexpr (sizeof(T) != 2) AddKernel(op, dtype, &RunFunction<Formula, bool, T, T>, true);
      });
    }
    return true;
  }
};
template <DTypeSet kTypes>
struct Relation<EqualFormula, kTypes> : Equality<EqualFormula> {};
template <DTypeSet kTypes>
struct Relation<NotEqualFormula, kTypes> : Equality<NotEqualFormula> {};

bool AddWhere() {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitBits(dtype, [&](auto bits) {
      using T = decltype(bits);
      AddKernel(OpCode::kWhere, dtype, &RunFunction<WhereFunction, T, bool, T, T>, true);
    });
  }
  return true;
}

const bool registered = [] {
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  Relation<Name##Formula, types>::Add(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
#include "tidepool/ndarray/kernel/operators/logic.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddPredicate<Name##Formula, types>(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
#undef TIDEPOOL_OPERATOR
  AddFunction<LogicalNotFormula, kBoolean>(OpCode::kLogicalNot);
  return AddWhere();
}();

}  // namespace
}  // namespace tidepool::cuda
