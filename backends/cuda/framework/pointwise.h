// Elementwise kernels: one function of elements, any strides and broadcasting, on every element.
//
//   struct AddFunction {
//     template <typename T>
//     __device__ T operator()(T x, T y) const { return x + y; }
//   };
//   void RunAdd(const KernelCall& call) { RunPointwise<float, float, float>(call, AddFunction()); }
//
// Functions see elements as ToCompute gives them and return what FromCompute takes; they may hold
// numbers, which go to the device by value. Outputs may be the very same view as an input.
//
// Dense operands, and single elements that all share, are moved 16 bytes at a time; all else goes by
// StridedLayout, whose innermost axis lies along neighbouring threads.
#ifndef TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_POINTWISE_H_
#define TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_POINTWISE_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tidepool/backends/cuda/framework/numbers.h"
#include "tidepool/backends/cuda/framework/queue.h"
#include "tidepool/backends/cuda/framework/strided_layout.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cuda {

inline constexpr int kPointwiseThreads = 256;

// Elements of one access: 16 bytes of the widest type.
template <typename... T>
inline constexpr int kPointwiseWidth = static_cast<int>(16 / std::max({sizeof(T)...}));

// Bit i of `scalars`: operand i is one element.
template <int kWidth, typename T>
__device__ __forceinline__ Vector<T, kWidth> LoadVector(const T* x, int64_t n, bool scalar) {
  if (!scalar) return reinterpret_cast<const Vector<T, kWidth>*>(x)[n];
  Vector<T, kWidth> all;
  const T value = *x;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) all.lane[i] = value;
  return all;
}

template <typename Z, int kWidth, typename Function, typename... X>
__device__ __forceinline__ Vector<Z, kWidth> ApplyToVectors(const Function& function,
                                                            const Vector<X, kWidth>&... x) {
  Vector<Z, kWidth> z;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) z.lane[i] = FromCompute<Z>(function(ToCompute(x.lane[i])...));
  return z;
}

template <typename Function, typename Z, typename... X, size_t... I>
__device__ __forceinline__ void FlatLoop(std::index_sequence<I...>, const Function& function,
                                         int64_t count, unsigned scalars, Z* z, const X*... x) {
  constexpr int kWidth = kPointwiseWidth<Z, X...>;
  const int64_t vectors = count / kWidth;
  for (int64_t n = GlobalThread(); n < vectors; n += GlobalThreads()) {
    reinterpret_cast<Vector<Z, kWidth>*>(z)[n] =
        ApplyToVectors<Z, kWidth>(function, LoadVector<kWidth>(x, n, (scalars >> I & 1) != 0)...);
  }
  // What is left is less than a vector.
  const int64_t n = vectors * kWidth + GlobalThread();
  if (n < count) z[n] = FromCompute<Z>(function(ToCompute(x[(scalars >> I & 1) != 0 ? 0 : n])...));
}

template <typename Function, typename Z, typename... X>
__global__ void __launch_bounds__(kPointwiseThreads)
    FlatPointwise(Function function, int64_t count, unsigned scalars, Z* z, const X*... x) {
  FlatLoop(std::index_sequence_for<X...>(), function, count, scalars, z, x...);
}

template <typename Function, typename Z, typename... X, size_t... I>
__device__ __forceinline__ void StridedLoop(std::index_sequence<I...>, const Function& function,
                                            const StridedLayout& layout, Z* z, const X*... x) {
  for (int64_t n = GlobalThread(); n < layout.count; n += GlobalThreads()) {
    int32_t offsets[sizeof...(X) + 1];
    layout.Offsets(static_cast<uint32_t>(n), offsets);
    z[offsets[0]] = FromCompute<Z>(function(ToCompute(x[offsets[I + 1]])...));
  }
}

template <typename Function, typename Z, typename... X>
__global__ void __launch_bounds__(kPointwiseThreads)
    StridedPointwise(Function function, StridedLayout layout, Z* z, const X*... x) {
  StridedLoop(std::index_sequence_for<X...>(), function, layout, z, x...);
}

template <typename Z, typename... X, typename Function, size_t... I>
void RunPointwise(std::index_sequence<I...>, const KernelCall& call, const Function& function) {
  const TensorRef& z = call.outputs[0];
  const TensorRef* const refs[] = {&z, &call.inputs[I]...};
  const StridedPlan plan(z, refs);
  const Queue queue = QueueOf(call);
  constexpr int kWidth = kPointwiseWidth<Z, X...>;
  if (plan.IsFlat()) {
    unsigned scalars = 0;
    bool aligned = reinterpret_cast<uintptr_t>(z.data) % (kWidth * sizeof(Z)) == 0;
    [[maybe_unused]] auto look = [&](int input, size_t width) {
      if (plan.IsScalar(input + 1)) {
        scalars |= 1u << input;
      } else if (reinterpret_cast<uintptr_t>(call.inputs[input].data) % (kWidth * width) != 0) {
        aligned = false;
      }
    };
    (look(static_cast<int>(I), sizeof(X)), ...);
    if (aligned) {
      const unsigned blocks = queue.Blocks((plan.count + kWidth - 1) / kWidth, kPointwiseThreads);
      Launch(FlatPointwise<Function, Z, X...>, blocks, kPointwiseThreads, 0, queue.stream, function,
             plan.count, scalars, z.as<Z>(), call.inputs[I].template as<const X>()...);
      return;
    }
  }
  ForEachPiece(plan, [&](const StridedLayout& layout, const int64_t* offsets) {
    Launch(StridedPointwise<Function, Z, X...>, queue.Blocks(layout.count, kPointwiseThreads),
           kPointwiseThreads, 0, queue.stream, function, layout, z.as<Z>() + offsets[0],
           call.inputs[I].template as<const X>() + offsets[I + 1]...);
  });
}

// Z = function(X...) of the first inputs, which broadcast.
template <typename Z, typename... X, typename Function>
void RunPointwise(const KernelCall& call, const Function& function) {
  RunPointwise<Z, X...>(std::index_sequence_for<X...>(), call, function);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_POINTWISE_H_
