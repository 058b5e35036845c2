// Comparisons, logic, predicates and choice. Nothing is equal to NaN, less or greater.
#include <cstdint>

#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {
namespace {

#define TIDEPOOL_RELATION(Name, relation)                                  \
  struct Name {                                                            \
    template <typename T>                                                  \
    __device__ bool operator()(T x, T y) const {                           \
      return x relation y;                                                 \
    }                                                                      \
  };
TIDEPOOL_RELATION(EqualFunction, ==)
TIDEPOOL_RELATION(NotEqualFunction, !=)
TIDEPOOL_RELATION(LessFunction, <)
TIDEPOOL_RELATION(LessEqualFunction, <=)
TIDEPOOL_RELATION(AndFunction, &&)
TIDEPOOL_RELATION(OrFunction, ||)
#undef TIDEPOOL_RELATION

struct NotFunction {
  __device__ bool operator()(bool x) const { return !x; }
};
struct IsNanFunction {
  template <typename T>
  __device__ bool operator()(T x) const {
    return x != x;
  }
};
struct IsFiniteFunction {
  template <typename T>
  __device__ bool operator()(T x) const {
    return x - x == T(0);
  }
};

// Moves elements as they are.
struct WhereFunction {
  template <typename T>
  __device__ T operator()(bool condition, T x, T y) const {
    return condition ? x : y;
  }
};

// x > y is y < x: the kernels of the other.
template <typename Function, typename T>
void RunSwapped(const KernelCall& call) {
  const TensorRef swapped[2] = {call.inputs[1], call.inputs[0]};
  KernelCall other = call;
  other.inputs = swapped;
  RunPointwise<bool, T, T>(other, Function());
}

template <typename Function>
bool AddSwapped(OpCode op) {
  ForEachType(AllTypes(), [op](auto t) {
    using T = decltype(t);
    AddKernel(op, DTypeOf<T>::value, &RunSwapped<Function, T>, true);
  });
  return true;
}

// Integers and bool are equal when their bits are: one kernel for each width.
template <typename Function>
bool AddEquality(OpCode op) {
  ForEachType(FloatTypes(), [op](auto t) {
    using T = decltype(t);
    AddKernel(op, DTypeOf<T>::value, &RunFunction<Function, bool, T, T>, true);
  });
  for (DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64, DType::kBool}) {
    VisitBits(dtype, [&](auto bits) {
      using T = decltype(bits);
      if constexpr (sizeof(T) != 2) AddKernel(op, dtype, &RunFunction<Function, bool, T, T>, true);
    });
  }
  return true;
}

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

const bool registered[] = {
    AddEquality<EqualFunction>(OpCode::kEqual),
    AddEquality<NotEqualFunction>(OpCode::kNotEqual),
    AddComparison<LessFunction>(OpCode::kLess, AllTypes()),
    AddComparison<LessEqualFunction>(OpCode::kLessEqual, AllTypes()),
    AddSwapped<LessFunction>(OpCode::kGreater),
    AddSwapped<LessEqualFunction>(OpCode::kGreaterEqual),
    AddBinary<AndFunction>(OpCode::kLogicalAnd, TypeList<bool>()),
    AddBinary<OrFunction>(OpCode::kLogicalOr, TypeList<bool>()),
    AddBinary<NotEqualFunction>(OpCode::kLogicalXor, TypeList<bool>()),
    AddUnary<NotFunction>(OpCode::kLogicalNot, TypeList<bool>()),
    AddPredicate<IsNanFunction>(OpCode::kIsNan, FloatTypes()),
    AddPredicate<IsFiniteFunction>(OpCode::kIsFinite, FloatTypes()),
    AddWhere(),
};

}  // namespace
}  // namespace tidepool::cuda
