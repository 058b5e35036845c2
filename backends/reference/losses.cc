// Squared and absolute error, Huber's and binary cross-entropy: means over all axes but the first. CTC.
#include <cmath>
#include <vector>

#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/ctc_paths.h"

namespace tidepool {
namespace {

// The operand without its first axis, at `row`.
TensorRef RowOf(const TensorRef& ref, int64_t row) {
  TensorRef part = ref;
  part.data =
      ref.as<std::byte>() + row * ref.strides[0] * static_cast<int64_t>(DTypeBytes(ref.dtype));
  part.rank = ref.rank - 1;
  part.dims = ref.dims + 1;
  part.strides = ref.strides + 1;
  return part;
}

// visit(elements...) for each element of N operands of one shape.
template <typename T, int N, typename Visit>
void ForEachElement(const TensorRef (&refs)[N], Visit visit) {
  int64_t strides[N][kMaxRank];
  for (int n = 0; n < N; ++n) {
    BroadcastStrides(refs[n].rank, refs[n].dims, refs[n].strides, refs[n].rank, strides[n]);
  }
  ForEachRun<N>(refs[0].rank, refs[0].dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  for (int64_t i = 0; i < count; ++i) {
                    auto at = [&](int n) -> T& {
                      return refs[n].template as<T>()[offset[n] + i * stride[n]];
                    };
                    if constexpr (N == 2) {
                      visit(at(0), at(1));
                    } else {
                      visit(at(0), at(1), at(2));
                    }
                  }
                });
}

template <typename T, typename Term>
void MeanOfRows(const KernelCall& call, Term term) {
  const TensorRef& x = call.inputs[0];
  for (int64_t row = 0; row < x.dims[0]; ++row) {
    Wide<T> sum = 0;
    const TensorRef refs[] = {RowOf(x, row), RowOf(call.inputs[1], row)};
    ForEachElement<T>(refs, [&](T value, T target) {
      sum += term(static_cast<Wide<T>>(value), static_cast<Wide<T>>(target));
    });
    At<T>(call.outputs[0], row) = Narrow<T>(sum / static_cast<Wide<T>>(refs[0].NumElements()));
  }
}

// scale(row) * slope(x, target), divided by the elements of a row.
template <typename T, typename Scale, typename Slope>
void GradOfRows(const KernelCall& call, Scale scale, Slope slope) {
  const TensorRef& x = call.inputs[0];
  for (int64_t row = 0; row < x.dims[0]; ++row) {
    const TensorRef refs[] = {RowOf(x, row), RowOf(call.inputs[1], row),
                              RowOf(call.outputs[0], row)};
    const Wide<T> factor = scale(row) / static_cast<Wide<T>>(refs[0].NumElements());
    ForEachElement<T>(refs, [&](T value, T target, T& gradient) {
      gradient =
          Narrow<T>(factor * slope(static_cast<Wide<T>>(value), static_cast<Wide<T>>(target)));
    });
  }
}

template <typename T, typename Slope>
void GradByScale(const KernelCall& call, Slope slope) {
  const Wide<T> scale = call.attrs<LossGradAttributes>().scale;
  GradOfRows<T>(
      call, [=](int64_t) { return scale; }, slope);
}

// By the gradient of each row's loss, the third input; slope(x - target).
template <typename T, typename Slope>
void GradByRows(const KernelCall& call, Slope slope) {
  GradOfRows<T>(
      call, [&](int64_t row) { return static_cast<Wide<T>>(At<T>(call.inputs[2], row)); },
      [=](Wide<T> x, Wide<T> target) { return slope(x - target); });
}

template <typename T>
void SquaredError(const KernelCall& call) {
  MeanOfRows<T>(call, [](Wide<T> x, Wide<T> target) { return (x - target) * (x - target); });
}

template <typename T>
void SquaredErrorGrad(const KernelCall& call) {
  GradByScale<T>(call, [](Wide<T> x, Wide<T> target) { return 2 * (x - target); });
}

// log(1 + exp(x)) - x * target without overflow.
template <typename T>
void BinaryCrossEntropy(const KernelCall& call) {
  MeanOfRows<T>(call, [](Wide<T> x, Wide<T> target) {
    const Wide<T> positive = x < 0 ? 0 : x;  // NaN stays
    return positive - x * target + std::log1p(std::exp(-std::abs(x)));
  });
}

template <typename T>
void BinaryCrossEntropyGrad(const KernelCall& call) {
  GradByScale<T>(call, [](Wide<T> x, Wide<T> target) { return 1 / (1 + std::exp(-x)) - target; });
}

template <typename T>
void AbsoluteError(const KernelCall& call) {
  MeanOfRows<T>(call, [](Wide<T> x, Wide<T> target) { return std::abs(x - target); });
}

template <typename T>
void AbsoluteErrorGrad(const KernelCall& call) {
  GradByRows<T>(call, [](Wide<T> d) {
    return d > 0 ? Wide<T>(1) : d < 0 ? Wide<T>(-1) : d * 0;
  });  // NaN stays
}

template <typename T>
void HuberError(const KernelCall& call) {
  const Wide<T> delta = call.attrs<HuberAttributes>().delta;
  MeanOfRows<T>(call, [=](Wide<T> x, Wide<T> target) {
    const Wide<T> d = std::abs(x - target);
    return d > delta ? delta * (d - delta / 2) : d * d / 2;
  });
}

template <typename T>
void HuberErrorGrad(const KernelCall& call) {
  const Wide<T> delta = call.attrs<HuberAttributes>().delta;
  GradByRows<T>(call, [=](Wide<T> d) { return d > delta ? delta : d < -delta ? -delta : d; });
}

template <typename T>
void Ctc(const KernelCall& call) {
  CtcOfExamples<T, Wide<T>>(call, 0, call.inputs[0].dims[0],
                            std::vector<Wide<T>>(CtcScratch(call)).data());
}

template <typename T>
void CtcGrad(const KernelCall& call) {
  CtcGradOfExamples<T, Wide<T>>(call, 0, call.inputs[0].dims[0],
                                std::vector<Wide<T>>(CtcGradScratch(call)).data());
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kSquaredError, SquaredError),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kSquaredErrorGrad, SquaredErrorGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kBinaryCrossEntropy, BinaryCrossEntropy),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kBinaryCrossEntropyGrad, BinaryCrossEntropyGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kAbsoluteError, AbsoluteError),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kAbsoluteErrorGrad, AbsoluteErrorGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kHuberError, HuberError),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kHuberErrorGrad, HuberErrorGrad),
    ReferenceKernel(OpCode::kCtcLoss, DType::kFloat32, &Ctc<float>),
    ReferenceKernel(OpCode::kCtcLoss, DType::kFloat64, &Ctc<double>),
    ReferenceKernel(OpCode::kCtcLossGrad, DType::kFloat32, &CtcGrad<float>),
    ReferenceKernel(OpCode::kCtcLossGrad, DType::kFloat64, &CtcGrad<double>),
});

}  // namespace
}  // namespace tidepool
