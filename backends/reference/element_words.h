// The words of ndarray/kernel/element_formulas.inc on this backend, the formulas, and kernels of them: in Wide<T>, rounded
// once, but for single operations, which are exact up to one rounding in T itself (f16 and bf16 in double).
#ifndef TIDEPOOL_BACKENDS_REFERENCE_ELEMENT_WORDS_H_
#define TIDEPOOL_BACKENDS_REFERENCE_ELEMENT_WORDS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/reference/pointwise.h"

namespace tidepool::reference {

using Truth = bool;

#define TIDEPOOL_WORD(Name, function) \
  template <typename T>               \
  T Name(T x) {                       \
    return std::function(x);          \
  }
TIDEPOOL_WORD(Fabs, fabs)
TIDEPOOL_WORD(Sqrt, sqrt)
TIDEPOOL_WORD(Cbrt, cbrt)
TIDEPOOL_WORD(Exp, exp)
TIDEPOOL_WORD(Exp2, exp2)
TIDEPOOL_WORD(Expm1, expm1)
TIDEPOOL_WORD(Log, log)
TIDEPOOL_WORD(Log2, log2)
TIDEPOOL_WORD(Log10, log10)
TIDEPOOL_WORD(Log1p, log1p)
TIDEPOOL_WORD(Sin, sin)
TIDEPOOL_WORD(Cos, cos)
TIDEPOOL_WORD(Tan, tan)
TIDEPOOL_WORD(Asin, asin)
TIDEPOOL_WORD(Acos, acos)
TIDEPOOL_WORD(Atan, atan)
TIDEPOOL_WORD(Sinh, sinh)
TIDEPOOL_WORD(Cosh, cosh)
TIDEPOOL_WORD(Tanh, tanh)
TIDEPOOL_WORD(Asinh, asinh)
TIDEPOOL_WORD(Acosh, acosh)
TIDEPOOL_WORD(Atanh, atanh)
TIDEPOOL_WORD(Erf, erf)
TIDEPOOL_WORD(Erfc, erfc)
TIDEPOOL_WORD(Floor, floor)
TIDEPOOL_WORD(Ceil, ceil)
TIDEPOOL_WORD(Trunc, trunc)
TIDEPOOL_WORD(Rint, rint)  // halves to even, in the default mode
#undef TIDEPOOL_WORD
#define TIDEPOOL_WORD_OF_TWO(Name, function) \
  template <typename T>                      \
  T Name(T x, T y) {                         \
    return std::function(x, y);              \
  }
TIDEPOOL_WORD_OF_TWO(Fmod, fmod)
TIDEPOOL_WORD_OF_TWO(Pow, pow)
TIDEPOOL_WORD_OF_TWO(Copysign, copysign)
TIDEPOOL_WORD_OF_TWO(Atan2, atan2)
TIDEPOOL_WORD_OF_TWO(Hypot, hypot)
#undef TIDEPOOL_WORD_OF_TWO
template <typename T>
T Fma(T a, T b, T c) {
  return a * b + c;
}

#define TIDEPOOL_FORMULA inline
#define TIDEPOOL_REAL(x) T(x##L)
// In this order: each needs those above it.
// clang-format off
#include "tidepool/ndarray/kernel/element_formulas.inc"
#include "tidepool/ndarray/kernel/cell_formulas.inc"
// clang-format on
#undef TIDEPOOL_FORMULA
#undef TIDEPOOL_REAL

template <typename T>
using Own = std::conditional_t<kIs16BitFloat<T>, double, T>;

template <typename Z, typename Number>
Z Rounded(Number value) {
  if constexpr (std::is_same_v<Z, Number>) {
    return value;
  } else {
    return static_cast<Z>(value);
  }
}

// Z = formula(X...), all of type T, or Z truths.
template <typename Formula, typename T, typename Z, typename... X>
void RunFormula(const KernelCall& call) {
  using Number = std::conditional_t<Formula::kOneRounding, Own<T>, Wide<T>>;
  ForEachElement<Z, X...>(call,
                          [](X... x) { return Rounded<Z>(Formula()(static_cast<Number>(x)...)); });
}

// For each type of a row.
template <DTypeSet kTypes, typename Add>
void ForEachTypeOf(Add add) {
  [&]<typename... T>(TypeList<T...>) {
    (
        [&] {
          if constexpr (Contains(kTypes, DTypeOf<T>::value)) add(T());
        }(),
        ...);
  }(AllTypes());
}
// `run_of` gives the kernel of an element's type.
template <DTypeSet kTypes, typename RunOf>
void AddOfTypes(OpCode op, RunOf run_of) {
  ForEachTypeOf<kTypes>([&](auto t) {
    KernelRegistry::Global().Add({op, DeviceType::kHost, DTypeOf<decltype(t)>::value, "reference",
                                  0, run_of(t), nullptr, nullptr, true});
  });
}
template <typename Formula, DTypeSet kTypes>
void AddFunction(OpCode op) {
  AddOfTypes<kTypes>(op, []<typename T>(T) { return &RunFormula<Formula, T, T, T>; });
}
template <typename Formula, DTypeSet kTypes>
void AddFunctionOfTwo(OpCode op) {
  AddOfTypes<kTypes>(op, []<typename T>(T) { return &RunFormula<Formula, T, T, T, T>; });
}
template <typename Formula, DTypeSet kTypes>
void AddPredicate(OpCode op) {
  AddOfTypes<kTypes>(op, []<typename T>(T) { return &RunFormula<Formula, T, bool, T>; });
}
template <typename Formula, DTypeSet kTypes>
void AddRelation(OpCode op) {
  AddOfTypes<kTypes>(op, []<typename T>(T) { return &RunFormula<Formula, T, bool, T, T>; });
}

}  // namespace tidepool::reference

#endif  // TIDEPOOL_BACKENDS_REFERENCE_ELEMENT_WORDS_H_
