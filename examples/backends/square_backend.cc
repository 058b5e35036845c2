// A backend of three operators.
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool {
namespace {

// Any strides and broadcasting: the loop merges axes and hands out runs.
template <typename Function>
void Binary(const KernelCall& call, Function function) {
  const TensorRef &x = call.inputs[0], &y = call.inputs[1], &z = call.outputs[0];
  int64_t strides[3][kMaxRank];
  BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides[0]);
  BroadcastStrides(y.rank, y.dims, y.strides, z.rank, strides[1]);
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[2]);
  ForEachRun<3>(z.rank, z.dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  for (int64_t i = 0; i < count; ++i) {
                    z.as<float>()[offset[2] + i * stride[2]] =
                        function(x.as<float>()[offset[0] + i * stride[0]],
                                 y.as<float>()[offset[1] + i * stride[1]]);
                  }
                });
}

void RunAdd(const KernelCall& call) {
  Binary(call, [](float x, float y) { return x + y; });
}
void RunSubtract(const KernelCall& call) {
  Binary(call, [](float x, float y) { return x - y; });
}
void RunMultiply(const KernelCall& call) {
  Binary(call, [](float x, float y) { return x * y; });
}

constexpr Kernel Strided(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat32, "square", 5, run, nullptr, nullptr, true};
}

const KernelRegistrar registrar({
    Strided(OpCode::kAdd, &RunAdd),
    Strided(OpCode::kSubtract, &RunSubtract),
    Strided(OpCode::kMultiply, &RunMultiply),
});

}  // namespace
}  // namespace tidepool
