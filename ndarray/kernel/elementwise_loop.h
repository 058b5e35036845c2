// Elements of operands of one type, for kernels that take any strides (Kernel::strided) and run on
// the calling thread: a plain loop, with what broadcasts and what has gaps dealt with.
//
//   void RunAdd(const KernelCall& call) {
//     ForEachElement<float, 2>(call, [](float x, float y, float& z) { z = x + y; });
//   }
#ifndef TIDEPOOL_NDARRAY_KERNEL_ELEMENTWISE_LOOP_H_
#define TIDEPOOL_NDARRAY_KERNEL_ELEMENTWISE_LOOP_H_

#include <cstdint>
#include <utility>

#include "tidepool/ndarray/kernel/kernel.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool {

// Calls visit(T of each of the first `kInputs` inputs..., T& of the first output) for each element
// of that output. All are present and of type T; inputs have its shape or broadcast to it.
template <typename T, int kInputs, typename Visit>
void ForEachElement(const KernelCall& call, const Visit& visit) {
  const TensorRef& z = call.outputs[0];
  int64_t strides[kInputs + 1][kMaxRank];
  const T* inputs[kInputs + 1] = {};
  for (int i = 0; i < kInputs; ++i) {
    const TensorRef& x = call.inputs[i];
    BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides[i]);
    inputs[i] = x.as<T>();
  }
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[kInputs]);
  const auto run = [&]<int... kIndex>(std::integer_sequence<int, kIndex...>, const int64_t* offset,
                                      int64_t count, const int64_t* stride) {
    T* const out = z.as<T>() + offset[kInputs];
    for (int64_t i = 0; i < count; ++i) {
      visit(inputs[kIndex][offset[kIndex] + i * stride[kIndex]]..., out[i * stride[kInputs]]);
    }
  };
  ForEachRun<kInputs + 1>(z.rank, z.dims, strides,
                          [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                            run(std::make_integer_sequence<int, kInputs>(), offset, count, stride);
                          });
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ELEMENTWISE_LOOP_H_
