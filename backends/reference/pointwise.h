// Plain loops over operands of any strides, and the registration of an operator for several types.
#ifndef TIDEPOOL_BACKENDS_REFERENCE_POINTWISE_H_
#define TIDEPOOL_BACKENDS_REFERENCE_POINTWISE_H_

#include <cstdint>
#include <tuple>
#include <utility>

#include "tidepool/backends/reference/wide.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool {

// Z = function(X...) of elements, the inputs broadcast.
template <typename Z, typename... X, typename Function>
void ForEachElement(const KernelCall& call, Function function) {
  constexpr int kInputs = sizeof...(X);
  const TensorRef& z = call.outputs[0];
  int64_t strides[kInputs + 1][kMaxRank];
  for (int i = 0; i < kInputs; ++i) {
    const TensorRef& x = call.inputs[i];
    BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides[i]);
  }
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[kInputs]);
  ForEachRun<kInputs + 1>(
      z.rank, z.dims, strides, [&](const int64_t* offset, int64_t count, const int64_t* stride) {
        [&]<size_t... I>(std::index_sequence<I...>) {
          Z* out = z.as<Z>() + offset[kInputs];
          const auto in = std::make_tuple((call.inputs[I].as<X>() + offset[I])...);
          for (int64_t i = 0; i < count; ++i) {
            out[i * stride[kInputs]] = function(std::get<I>(in)[i * stride[I]]...);
          }
        }
        (std::index_sequence_for<X...>());
      });
}

template <typename... T>
struct TypeList {};
using FloatTypes = TypeList<float, double, Float16, BFloat16>;
using IntegerTypes =
    TypeList<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t>;
using NumberTypes = TypeList<float, double, Float16, BFloat16, int8_t, uint8_t, int16_t, uint16_t,
                             int32_t, uint32_t, int64_t, uint64_t>;
using AllTypes = TypeList<float, double, Float16, BFloat16, int8_t, uint8_t, int16_t, uint16_t,
                          int32_t, uint32_t, int64_t, uint64_t, bool>;

// Registers Kernel::Run<T>(call) for each type.
template <typename Kernel, typename... T>
bool RegisterReference(OpCode op, TypeList<T...>) {
  (KernelRegistry::Global().Add({op, DeviceType::kHost, DTypeOf<T>::value, "reference", 0,
                                 &Kernel::template Run<T>, nullptr, nullptr, true}),
   ...);
  return true;
}

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_REFERENCE_POINTWISE_H_
