// Reversed axes, and triangles of matrices. Moves go by the width of elements.
#include <cstdint>

#include "tidepool/backends/cuda/framework/divider.h"
#include "tidepool/backends/cuda/framework/pointwise.h"
#include "tidepool/backends/cuda/framework/registration.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {
namespace {

constexpr int kThreads = 256;

struct MoveFunction {
  template <typename T>
  __device__ T operator()(T x) const {
    return x;
  }
};

// A copy from the same elements walked the other way.
template <typename T>
void RunFlip(const KernelCall& call) {
  const uint32_t axes = call.attrs<FlipAttributes>().axes;
  TensorRef x = call.inputs[0];
  int64_t strides[kMaxRank], first = 0;
  for (int axis = 0; axis < x.rank; ++axis) {
    const bool flipped = (axes >> axis & 1) != 0;
    strides[axis] = flipped ? -x.strides[axis] : x.strides[axis];
    if (flipped) first += (x.dims[axis] - 1) * x.strides[axis];
  }
  x.data = x.as<T>() + first;
  x.strides = strides;
  KernelCall copy = call;
  copy.inputs = absl::MakeConstSpan(&x, 1);
  RunPointwise<T, T>(copy, MoveFunction());
}

template <typename T>
__global__ void KeepTriangle(const T* x, T* z, int64_t total, Divider by_columns, Divider by_rows,
                             bool upper, int64_t diagonal) {
  for (int64_t n = GlobalThread(); n < total; n += GlobalThreads()) {
    int64_t column, row;
    by_rows.Divide(by_columns.Divide(n, &column), &row);
    const bool stays = upper ? column - row >= diagonal : column - row <= diagonal;
    z[n] = stays ? x[n] : T{0};
  }
}

template <typename T>
void RunTriangle(const KernelCall& call) {
  const auto& a = call.attrs<TriangleAttributes>();
  const TensorRef& x = call.inputs[0];
  const int64_t total = x.NumElements();
  const Queue queue = QueueOf(call);
  Launch(KeepTriangle<T>, queue.Blocks(total, kThreads), kThreads, 0, queue.stream, x.as<const T>(),
         call.outputs[0].as<T>(), total, Divider(x.dims[x.rank - 1], total),
         Divider(x.dims[x.rank - 2], total), a.upper, a.diagonal);
}

const bool registered = [] {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitBits(dtype, [&](auto bits) {
      using T = decltype(bits);
      AddKernel(OpCode::kFlip, dtype, &RunFlip<T>, true);
      AddKernel(OpCode::kTriangle, dtype, &RunTriangle<T>);
    });
  }
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
