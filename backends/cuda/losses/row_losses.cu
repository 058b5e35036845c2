// Squared and absolute error, Huber's and binary cross-entropy: means over all axes but the first,
// with gradients.
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/framework/divider.h"
#include "tidepool/backends/cuda/reduction/reduce_kernel.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cuda {
namespace {

template <typename W>
struct SquaredErrorOf {
  __device__ W Term(W x, W target) const { return (x - target) * (x - target); }
  __device__ W Slope(W x, W target) const { return 2 * (x - target); }
};

template <typename W>
struct BinaryCrossEntropyOf {
  // log(1 + exp(x)) - x * target without overflow.
  __device__ W Term(W x, W target) const {
    const W positive = x < 0 ? 0 : x;  // NaN stays
    return positive - x * target + Log1p(Exp(-Fabs(x)));
  }
  __device__ W Slope(W x, W target) const { return Sigmoid(x) - target; }
};

template <typename W>
struct AbsoluteErrorOf {
  __device__ W Term(W x, W target) const { return Fabs(x - target); }
  __device__ W Slope(W x, W target) const {
    const W d = x - target;
    return d > 0 ? W{1} : d < 0 ? W{-1} : d * 0;  // NaN stays
  }
};

template <typename W>
struct HuberErrorOf {
  W delta;
  __device__ W Term(W x, W target) const {
    const W d = Fabs(x - target);
    return d > delta ? delta * (d - delta / 2) : d * d / 2;
  }
  __device__ W Slope(W x, W target) const {
    const W d = x - target;
    return d > delta ? delta : d < -delta ? -delta : d;
  }
};

template <typename T, template <typename> typename Loss>
struct RowMeanOp {
  using W = Compute<T>;
  using State = double;
  using Context = NoContext;
  struct Value {
    T x, target;
  };
  const T* x;
  const T* target;
  T* loss;
  double count;
  Loss<W> of;
  static constexpr int kRunWidth = kAccessWidth<T>;
  __device__ bool IsAligned(int64_t at) const {
    return cuda::IsAligned(x + at) && cuda::IsAligned(target + at);
  }
  __device__ void LoadRun(int64_t at, int64_t, bool aligned, Value (&values)[kRunWidth]) const {
    const auto xs = LoadAccess<kRunWidth>(x + at, aligned);
    const auto targets = LoadAccess<kRunWidth>(target + at, aligned);
#pragma unroll
    for (int u = 0; u < kRunWidth; ++u) values[u] = {xs.lane[u], targets.lane[u]};
  }
  __device__ Context Begin(int64_t, int64_t) const { return {}; }
  __device__ State Init() const { return 0; }
  __device__ Value Load(Context, int64_t at, int64_t) const { return {x[at], target[at]}; }
  __device__ void Add(Context, const Value& value, int64_t, State* state) const {
    *state += static_cast<double>(of.Term(Wide(value.x), Wide(value.target)));
  }
  __device__ State Merge(State a, State b) const { return a + b; }
  __device__ void Finish(Context, int64_t row, int64_t, State state) const {
    loss[row] = Narrow<T>(state / count);
  }
};

// Elements that do not make a whole access are the last threads'.
template <typename T, template <typename> typename Loss>
__global__ void __launch_bounds__(kBlockThreads)
    GradKernel(int64_t count, const T* x, const T* target, T* gradient, Compute<T> scale) {
  constexpr int kWidth = kAccessWidth<T>;
  const bool aligned = IsAligned(x) && IsAligned(target) && IsAligned(gradient);
  auto slope = [&](T value, T its_target) {
    return Narrow<T>(scale * Loss<Compute<T>>().Slope(Wide(value), Wide(its_target)));
  };
  const int64_t accesses = count / kWidth;
  for (int64_t n = GlobalThread(); n < accesses; n += GlobalThreads()) {
    const auto xs = LoadAccess<kWidth>(x + n * kWidth, aligned);
    const auto targets = LoadAccess<kWidth>(target + n * kWidth, aligned);
    Vector<T, kWidth> result;
#pragma unroll
    for (int u = 0; u < kWidth; ++u) result.lane[u] = slope(xs.lane[u], targets.lane[u]);
    StoreAccess(gradient + n * kWidth, aligned, result);
  }
  const int64_t i = accesses * kWidth + GlobalThread();
  if (i < count) gradient[i] = slope(x[i], target[i]);
}

// By the gradient of each row's loss.
template <typename T, template <typename> typename Loss>
__global__ void __launch_bounds__(kBlockThreads)
    GradOfRowsKernel(int64_t count, Divider by_row, const T* x, const T* target,
                     const T* loss_gradient, T* gradient, Compute<T> scale, Loss<Compute<T>> loss) {
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads()) {
    int64_t rest;
    const Compute<T> of_row = Wide(loss_gradient[by_row.Divide(i, &rest)]) * scale;
    gradient[i] = Narrow<T>(of_row * loss.Slope(Wide(x[i]), Wide(target[i])));
  }
}

int64_t RowElements(const TensorRef& x) {
  int64_t count = 1;
  for (int i = 1; i < x.rank; ++i) count *= x.dims[i];
  return count;
}

template <typename T>
ReducePlan PlanOf(const KernelCall& call) {
  return PlanOfRows(call.inputs[0].dims[0], RowElements(call.inputs[0]), kAccessWidth<T>);
}

template <typename T>
size_t ScratchBytes(const KernelCall& call) {
  return ReduceScratchBytes<RowMeanOp<T, SquaredErrorOf>>(PlanOf<T>(call));
}

template <typename T, template <typename> typename Loss>
void RunLoss(const KernelCall& call, const Loss<Compute<T>>& loss = {}) {
  const ReducePlan plan = PlanOf<T>(call);
  const RowMeanOp<T, Loss> op{call.inputs[0].as<T>(), call.inputs[1].as<T>(),
                              call.outputs[0].as<T>(), static_cast<double>(plan.count), loss};
  Reduce(op, plan, call.scratch, StreamOf(call));
}

template <typename T, template <typename> typename Loss>
void RunGrad(const KernelCall& call) {
  const int64_t count = call.outputs[0].NumElements();
  if (count == 0) return;
  const double scale = call.attrs<LossGradAttributes>().scale;
  Launch(GradKernel<T, Loss>, BlocksFor(count / kAccessWidth<T> + 1, kBlockThreads), kBlockThreads,
         0, StreamOf(call), count, call.inputs[0].as<T>(), call.inputs[1].as<T>(),
         call.outputs[0].as<T>(),
         static_cast<Compute<T>>(scale / static_cast<double>(RowElements(call.inputs[0]))));
}

template <typename T, template <typename> typename Loss>
void RunGradOfRows(const KernelCall& call, const Loss<Compute<T>>& loss = {}) {
  const int64_t count = call.outputs[0].NumElements();
  if (count == 0) return;
  const int64_t row = RowElements(call.inputs[0]);
  Launch(GradOfRowsKernel<T, Loss>, BlocksFor(count, kBlockThreads), kBlockThreads, 0,
         StreamOf(call), count, Divider(row, count), call.inputs[0].as<T>(), call.inputs[1].as<T>(),
         call.inputs[2].as<T>(), call.outputs[0].as<T>(),
         static_cast<Compute<T>>(1 / static_cast<double>(row)), loss);
}

template <typename T>
void SquaredError(const KernelCall& call) {
  RunLoss<T, SquaredErrorOf>(call);
}
template <typename T>
void SquaredErrorGrad(const KernelCall& call) {
  RunGrad<T, SquaredErrorOf>(call);
}
template <typename T>
void BinaryCrossEntropy(const KernelCall& call) {
  RunLoss<T, BinaryCrossEntropyOf>(call);
}
template <typename T>
void BinaryCrossEntropyGrad(const KernelCall& call) {
  RunGrad<T, BinaryCrossEntropyOf>(call);
}

template <typename T>
void AbsoluteError(const KernelCall& call) {
  RunLoss<T, AbsoluteErrorOf>(call);
}
template <typename T>
void AbsoluteErrorGrad(const KernelCall& call) {
  RunGradOfRows<T, AbsoluteErrorOf>(call);
}
template <typename T>
HuberErrorOf<Compute<T>> HuberOf(const KernelCall& call) {
  return {static_cast<Compute<T>>(call.attrs<HuberAttributes>().delta)};
}
template <typename T>
void HuberError(const KernelCall& call) {
  RunLoss<T, HuberErrorOf>(call, HuberOf<T>(call));
}
template <typename T>
void HuberErrorGrad(const KernelCall& call) {
  RunGradOfRows<T, HuberErrorOf>(call, HuberOf<T>(call));
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_SCRATCH_KERNELS(OpCode::kSquaredError, SquaredError, ScratchBytes),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kSquaredErrorGrad, SquaredErrorGrad),
    TIDEPOOL_CUDA_SCRATCH_KERNELS(OpCode::kBinaryCrossEntropy, BinaryCrossEntropy, ScratchBytes),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kBinaryCrossEntropyGrad, BinaryCrossEntropyGrad),
    TIDEPOOL_CUDA_SCRATCH_KERNELS(OpCode::kAbsoluteError, AbsoluteError, ScratchBytes),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kAbsoluteErrorGrad, AbsoluteErrorGrad),
    TIDEPOOL_CUDA_SCRATCH_KERNELS(OpCode::kHuberError, HuberError, ScratchBytes),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kHuberErrorGrad, HuberErrorGrad),
});

}  // namespace
}  // namespace tidepool::cuda
