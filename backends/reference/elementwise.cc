// Arithmetic, ReLU and its gradient. Integers wrap around; their division truncates.
#include <cmath>
#include <limits>
#include <type_traits>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool {
namespace {

// Wraps instead of overflowing.
template <typename Operation>
int64_t Wrapping(int64_t x, int64_t y, Operation operation) {
  return static_cast<int64_t>(operation(static_cast<uint64_t>(x), static_cast<uint64_t>(y)));
}

struct AddElements {
  float operator()(float x, float y) const { return x + y; }
  int64_t operator()(int64_t x, int64_t y) const {
    return Wrapping(x, y, [](uint64_t a, uint64_t b) { return a + b; });
  }
};
struct SubtractElements {
  float operator()(float x, float y) const { return x - y; }
  int64_t operator()(int64_t x, int64_t y) const {
    return Wrapping(x, y, [](uint64_t a, uint64_t b) { return a - b; });
  }
};
struct MultiplyElements {
  float operator()(float x, float y) const { return x * y; }
  int64_t operator()(int64_t x, int64_t y) const {
    return Wrapping(x, y, [](uint64_t a, uint64_t b) { return a * b; });
  }
};
struct DivideElements {
  float operator()(float x, float y) const { return x / y; }
  // The caller has refused zero divisors. The one quotient that overflows wraps.
  int64_t operator()(int64_t x, int64_t y) const {
    return y == -1 ? SubtractElements()(int64_t{0}, x) : x / y;
  }
};
struct ReluGradElements {
  float operator()(float z, float dz) const { return z > 0 ? dz : 0; }
};

template <typename T, typename Operation>
void Binary(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.inputs[1];
  const TensorRef& z = call.outputs[0];
  int64_t strides[3][kMaxRank];
  BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides[0]);
  BroadcastStrides(y.rank, y.dims, y.strides, z.rank, strides[1]);
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[2]);
  ForEachRun<3>(z.rank, z.dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  for (int64_t i = 0; i < count; ++i) {
                    z.as<T>()[offset[2] + i * stride[2]] = Operation()(
                        x.as<T>()[offset[0] + i * stride[0]], y.as<T>()[offset[1] + i * stride[1]]);
                  }
                });
}

template <typename T, typename Operation>
void Unary(const KernelCall& call, Operation operation) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& z = call.outputs[0];
  int64_t strides[2][kMaxRank];
  BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides[0]);
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[1]);
  ForEachRun<2>(
      z.rank, z.dims, strides, [&](const int64_t* offset, int64_t count, const int64_t* stride) {
        for (int64_t i = 0; i < count; ++i) {
          z.as<T>()[offset[1] + i * stride[1]] = operation(x.as<T>()[offset[0] + i * stride[0]]);
        }
      });
}

void ScaleShiftFloat(const KernelCall& call) {
  const auto& attributes = call.attrs<ScaleShiftAttributes>();
  Unary<float>(
      call, [&](float x) { return static_cast<float>(attributes.scale * x + attributes.shift); });
}

bool IsInt64(double value) {
  return value >= -0x1p63 && value < 0x1p63 && value == std::trunc(value);
}

void ScaleShiftInt(const KernelCall& call) {
  const auto& attributes = call.attrs<ScaleShiftAttributes>();
  if (IsInt64(attributes.scale) && IsInt64(attributes.shift)) {
    const int64_t scale = static_cast<int64_t>(attributes.scale);
    const int64_t shift = static_cast<int64_t>(attributes.shift);
    Unary<int64_t>(call,
                   [&](int64_t x) { return AddElements()(MultiplyElements()(x, scale), shift); });
    return;
  }
  Unary<int64_t>(call, [&](int64_t x) {
    return ConvertElement<int64_t>(attributes.scale * static_cast<double>(x) + attributes.shift);
  });
}

// NaN stays NaN: it is not at most zero.
void Relu(const KernelCall& call) {
  Unary<float>(call, [](float x) { return x <= 0 ? 0.0f : x; });
}

constexpr Kernel Strided(OpCode op, DType dtype, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, dtype, "reference", 0, run, nullptr, nullptr, true};
}

constexpr DType kF32 = DType::kFloat32;
constexpr DType kI64 = DType::kInt64;

const KernelRegistrar registrar({
    Strided(OpCode::kAdd, kF32, &Binary<float, AddElements>),
    Strided(OpCode::kAdd, kI64, &Binary<int64_t, AddElements>),
    Strided(OpCode::kSubtract, kF32, &Binary<float, SubtractElements>),
    Strided(OpCode::kSubtract, kI64, &Binary<int64_t, SubtractElements>),
    Strided(OpCode::kMultiply, kF32, &Binary<float, MultiplyElements>),
    Strided(OpCode::kMultiply, kI64, &Binary<int64_t, MultiplyElements>),
    Strided(OpCode::kDivide, kF32, &Binary<float, DivideElements>),
    Strided(OpCode::kDivide, kI64, &Binary<int64_t, DivideElements>),
    Strided(OpCode::kScaleShift, kF32, &ScaleShiftFloat),
    Strided(OpCode::kScaleShift, kI64, &ScaleShiftInt),
    Strided(OpCode::kRelu, kF32, &Relu),
    Strided(OpCode::kReluGrad, kF32, &Binary<float, ReluGradElements>),
});

}  // namespace
}  // namespace tidepool
