// Elementwise operators of any strides; contiguous runs of floats go to the vector loops.
#include <algorithm>
#include <cstdint>

#include "tidepool/backends/cpu/thread_pool.h"
#include "tidepool/backends/cpu/vector_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool::cpu {
namespace {

// Elements a task of a parallel loop takes: several pages, so that tasks do not share lines.
constexpr int64_t kGrain = 1 << 15;

template <int kOp>
float Apply(float x, float y) {
  if constexpr (kOp == 0) return x + y;
  if constexpr (kOp == 1) return x - y;
  if constexpr (kOp == 2) return x * y;
  return x / y;
}

template <int kOp>
void Binary(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.inputs[1];
  const TensorRef& z = call.outputs[0];
  const VectorLoops& loops = Loops();
  int64_t strides[3][kMaxRank];
  BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides[0]);
  BroadcastStrides(y.rank, y.dims, y.strides, z.rank, strides[1]);
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[2]);
  ForEachRun<3>(
      z.rank, z.dims, strides, [&](const int64_t* offset, int64_t count, const int64_t* stride) {
        const float* a = x.as<float>() + offset[0];
        const float* b = y.as<float>() + offset[1];
        float* out = z.as<float>() + offset[2];
        if (stride[2] == 1 && stride[0] == 1 && stride[1] == 1) {
          ParallelFor(call.threads, count, kGrain, count, [&](int64_t begin, int64_t end) {
            loops.binary[kOp](a + begin, b + begin, out + begin, end - begin);
          });
        } else if (stride[2] == 1 && stride[0] == 1 && stride[1] == 0) {
          loops.binary_scalar_y[kOp](a, *b, out, count);
        } else if (stride[2] == 1 && stride[0] == 0 && stride[1] == 1) {
          loops.binary_scalar_x[kOp](*a, b, out, count);
        } else {
          for (int64_t i = 0; i < count; ++i) {
            out[i * stride[2]] = Apply<kOp>(a[i * stride[0]], b[i * stride[1]]);
          }
        }
      });
}

// Unary loops over dense operands.
template <typename Loop>
void ForDense(const KernelCall& call, Loop loop) {
  const int64_t count = call.outputs[0].NumElements();
  ParallelFor(call.threads, count, kGrain, count, loop);
}

void RunScaleShift(const KernelCall& call) {
  const auto& a = call.attrs<ScaleShiftAttributes>();
  const float scale = static_cast<float>(a.scale), shift = static_cast<float>(a.shift);
  const float* x = call.inputs[0].as<float>();
  float* z = call.outputs[0].as<float>();
  ForDense(call, [&](int64_t begin, int64_t end) {
    Loops().scale_shift(x + begin, scale, shift, z + begin, end - begin);
  });
}

void RunRelu(const KernelCall& call) {
  const float* x = call.inputs[0].as<float>();
  float* z = call.outputs[0].as<float>();
  ForDense(call,
           [&](int64_t begin, int64_t end) { Loops().relu(x + begin, z + begin, end - begin); });
}

void RunReluGrad(const KernelCall& call) {
  const float* z = call.inputs[0].as<float>();
  const float* dz = call.inputs[1].as<float>();
  float* dx = call.outputs[0].as<float>();
  ForDense(call, [&](int64_t begin, int64_t end) {
    Loops().relu_grad(z + begin, dz + begin, dx + begin, end - begin);
  });
}

constexpr DeviceType kHost = DeviceType::kHost;
constexpr DType kF32 = DType::kFloat32;
constexpr int kPriority = 10;

const KernelRegistrar registrar({
    {OpCode::kAdd, kHost, kF32, "cpu", kPriority, &Binary<0>, nullptr, nullptr, true},
    {OpCode::kSubtract, kHost, kF32, "cpu", kPriority, &Binary<1>, nullptr, nullptr, true},
    {OpCode::kMultiply, kHost, kF32, "cpu", kPriority, &Binary<2>, nullptr, nullptr, true},
    {OpCode::kDivide, kHost, kF32, "cpu", kPriority, &Binary<3>, nullptr, nullptr, true},
    {OpCode::kScaleShift, kHost, kF32, "cpu", kPriority, &RunScaleShift},
    {OpCode::kRelu, kHost, kF32, "cpu", kPriority, &RunRelu},
    {OpCode::kReluGrad, kHost, kF32, "cpu", kPriority, &RunReluGrad},
});

}  // namespace
}  // namespace tidepool::cpu
