// Max pooling. NaN counts as largest, so it reaches the output. Where windows overlap, gradients
// are added in float in the row-major order of the windows: the sum is the same on every backend.
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

bool Larger(float x, float y) { return x > y || (x != x && y == y); }

struct Position {
  int64_t row, column;
};

// The first largest element of the window of output (i, j).
Position Largest(const TensorRef& input, const Pool2dAttributes& a, int64_t n, int64_t i, int64_t j,
                 int64_t c) {
  Position best{i * a.stride_height, j * a.stride_width};
  float value = At<float>(input, n, best.row, best.column, c);
  for (int64_t r = 0; r < a.kernel_height; ++r) {
    for (int64_t s = 0; s < a.kernel_width; ++s) {
      const Position here{i * a.stride_height + r, j * a.stride_width + s};
      const float candidate = At<float>(input, n, here.row, here.column, c);
      if (!Larger(candidate, value)) continue;
      value = candidate;
      best = here;
    }
  }
  return best;
}

template <typename Visit>
void ForEachElement(const TensorRef& ref, Visit visit) {
  for (int64_t n = 0; n < ref.dims[0]; ++n) {
    for (int64_t i = 0; i < ref.dims[1]; ++i) {
      for (int64_t j = 0; j < ref.dims[2]; ++j) {
        for (int64_t c = 0; c < ref.dims[3]; ++c) visit(n, i, j, c);
      }
    }
  }
}

void MaxPool2d(const KernelCall& call) {
  const auto& a = call.attrs<Pool2dAttributes>();
  const TensorRef& input = call.inputs[0];
  const TensorRef& output = call.outputs[0];
  ForEachElement(output, [&](int64_t n, int64_t i, int64_t j, int64_t c) {
    const Position p = Largest(input, a, n, i, j, c);
    At<float>(output, n, i, j, c) = At<float>(input, n, p.row, p.column, c);
  });
}

void MaxPool2dGrad(const KernelCall& call) {
  const auto& a = call.attrs<Pool2dAttributes>();
  const TensorRef& input = call.inputs[0];
  const TensorRef& gradient = call.inputs[2];
  const TensorRef& result = call.outputs[0];
  ForEachElement(result, [&](int64_t n, int64_t i, int64_t j, int64_t c) {
    At<float>(result, n, i, j, c) = 0;
  });
  ForEachElement(gradient, [&](int64_t n, int64_t i, int64_t j, int64_t c) {
    const Position p = Largest(input, a, n, i, j, c);
    if (a.relu_grad && !(At<float>(input, n, p.row, p.column, c) > 0)) return;
    At<float>(result, n, p.row, p.column, c) += At<float>(gradient, n, i, j, c);
  });
}

constexpr Kernel Strided(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat32, "reference", 0, run, nullptr, nullptr, true};
}

const KernelRegistrar registrar({
    Strided(OpCode::kMaxPool2d, &MaxPool2d),
    Strided(OpCode::kMaxPool2dGrad, &MaxPool2dGrad),
});

}  // namespace
}  // namespace tidepool
