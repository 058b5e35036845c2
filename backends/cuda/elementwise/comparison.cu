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

template <typename Function>
struct Swapped {
  template <typename T>
  __device__ bool operator()(T x, T y) const {
    return Function()(y, x);
  }
};

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
    AddComparison<EqualFunction>(OpCode::kEqual, AllTypes()),
    AddComparison<NotEqualFunction>(OpCode::kNotEqual, AllTypes()),
    AddComparison<LessFunction>(OpCode::kLess, AllTypes()),
    AddComparison<LessEqualFunction>(OpCode::kLessEqual, AllTypes()),
    AddComparison<Swapped<LessFunction>>(OpCode::kGreater, AllTypes()),
    AddComparison<Swapped<LessEqualFunction>>(OpCode::kGreaterEqual, AllTypes()),
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
