// Registration of elementwise functions for lists of types.
#ifndef TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_REGISTER_H_
#define TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_REGISTER_H_

#include "tidepool/backends/cuda/framework/pointwise.h"
#include "tidepool/backends/cuda/framework/registration.h"

namespace tidepool::cuda {

// A Function is made for each call: from the call where it has such a constructor.
template <typename Function>
Function MakeFunction(const KernelCall& call) {
  if constexpr (std::is_constructible_v<Function, const KernelCall&>) {
    return Function(call);
  } else {
    return Function();
  }
}

template <typename Function, typename Z, typename... X>
void RunFunction(const KernelCall& call) {
  RunPointwise<Z, X...>(call, MakeFunction<Function>(call));
}

// Visits T() for each type of a row.
template <DTypeSet kTypes, typename Visit>
void ForEachTypeOf(Visit visit) {
  ForEachType(AllTypes(), [&](auto t) {
    if constexpr (Contains(kTypes, DTypeOf<decltype(t)>::value)) visit(t);
  });
}

template <typename Function, DTypeSet kTypes>
bool AddFunction(OpCode op) {
  ForEachTypeOf<kTypes>([op](auto t) {
    using T = decltype(t);
    AddKernel(op, DTypeOf<T>::value, &RunFunction<Function, T, T>, true);
  });
  return true;
}
template <typename Function, DTypeSet kTypes>
bool AddFunctionOfTwo(OpCode op) {
  ForEachTypeOf<kTypes>([op](auto t) {
    using T = decltype(t);
    AddKernel(op, DTypeOf<T>::value, &RunFunction<Function, T, T, T>, true);
  });
  return true;
}
// Their outputs are bool.
template <typename Function, DTypeSet kTypes>
bool AddPredicate(OpCode op) {
  ForEachTypeOf<kTypes>([op](auto t) {
    using T = decltype(t);
    AddKernel(op, DTypeOf<T>::value, &RunFunction<Function, bool, T>, true);
  });
  return true;
}
template <typename Function, DTypeSet kTypes>
bool AddRelation(OpCode op) {
  ForEachTypeOf<kTypes>([op](auto t) {
    using T = decltype(t);
    AddKernel(op, DTypeOf<T>::value, &RunFunction<Function, bool, T, T>, true);
  });
  return true;
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_ELEMENTWISE_REGISTER_H_
