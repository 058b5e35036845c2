// Batch and layer normalisation in the wide type: the mean first, then the squares around it.
// Statistics of 16-bit floats are f32.
#include <cmath>
#include <type_traits>

#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool {
namespace {

template <typename T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
Wide<T> WideAt(const TensorRef& ref, int64_t i) {
  return static_cast<Wide<T>>(At<T>(ref, i));
}

// The operand at one element of its last axis, or all but that axis left out.
TensorRef Channel(const TensorRef& ref, int64_t channel) {
  TensorRef part = ref;
  part.rank = ref.rank - 1;
  part.data = ref.as<std::byte>() +
              channel * ref.strides[part.rank] * static_cast<int64_t>(DTypeBytes(ref.dtype));
  return part;
}

// visit(elements...) for each element of N operands of one shape.
template <typename T, typename Visit, typename... Ref>
void ForEachElement(Visit visit, const Ref&... parts) {
  constexpr int kCount = sizeof...(Ref);
  const TensorRef* const refs[kCount] = {&parts...};
  int64_t strides[kCount][kMaxRank];
  for (int n = 0; n < kCount; ++n) {
    BroadcastStrides(refs[n]->rank, refs[n]->dims, refs[n]->strides, refs[n]->rank, strides[n]);
  }
  ForEachRun<kCount>(refs[0]->rank, refs[0]->dims, strides,
                     [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                       for (int64_t i = 0; i < count; ++i) {
                         T* at[kCount];
                         for (int n = 0; n < kCount; ++n) {
                           at[n] = refs[n]->template as<T>() + offset[n] + i * stride[n];
                         }
                         visit(at);
                       }
                     });
}

template <typename T>
struct Moments {
  Wide<T> mean = 0, variance = 0;
};

template <typename T>
Moments<T> MomentsOf(const TensorRef& x) {
  Moments<T> m;
  const Wide<T> count = static_cast<Wide<T>>(x.NumElements());
  ForEachElement<T>([&](T* const* at) { m.mean += static_cast<Wide<T>>(*at[0]); }, x);
  m.mean /= count;
  ForEachElement<T>(
      [&](T* const* at) {
        const Wide<T> d = static_cast<Wide<T>>(*at[0]) - m.mean;
        m.variance += d * d;
      },
      x);
  m.variance /= count;
  return m;
}

template <typename T>
void BatchNorm(const KernelCall& call) {
  using S = Statistic<T>;
  const Wide<T> epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const TensorRef& x = call.inputs[0];
  for (int64_t c = 0; c < x.dims[x.rank - 1]; ++c) {
    const TensorRef in = Channel(x, c), out = Channel(call.outputs[0], c);
    const Moments<T> m = MomentsOf<T>(in);
    const Wide<T> inverse = 1 / std::sqrt(m.variance + epsilon);
    At<S>(call.outputs[1], c) = static_cast<S>(m.mean);
    At<S>(call.outputs[2], c) = static_cast<S>(inverse);
    ForEachElement<T>(
        [&](T* const* at) {
          *at[1] = Narrow<T>((static_cast<Wide<T>>(*at[0]) - m.mean) * inverse *
                                 WideAt<T>(call.inputs[1], c) +
                             WideAt<T>(call.inputs[2], c));
        },
        in, out);
  }
}

template <typename T>
void BatchNormInference(const KernelCall& call) {
  using S = Statistic<T>;
  const Wide<T> epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const TensorRef& x = call.inputs[0];
  for (int64_t c = 0; c < x.dims[x.rank - 1]; ++c) {
    const Wide<T> mean = At<S>(call.inputs[3], c), variance = At<S>(call.inputs[4], c);
    const Wide<T> factor = WideAt<T>(call.inputs[1], c) / std::sqrt(variance + epsilon);
    ForEachElement<T>(
        [&](T* const* at) {
          *at[1] = Narrow<T>((static_cast<Wide<T>>(*at[0]) - mean) * factor +
                             WideAt<T>(call.inputs[2], c));
        },
        Channel(x, c), Channel(call.outputs[0], c));
  }
}

template <typename T>
void BatchNormGrad(const KernelCall& call) {
  using S = Statistic<T>;
  const TensorRef& x = call.inputs[0];
  for (int64_t c = 0; c < x.dims[x.rank - 1]; ++c) {
    const TensorRef in = Channel(x, c), gradient = Channel(call.inputs[4], c);
    const Wide<T> mean = At<S>(call.inputs[2], c), inverse = At<S>(call.inputs[3], c);
    const Wide<T> count = static_cast<Wide<T>>(in.NumElements());
    Wide<T> dscale = 0, dshift = 0;
    ForEachElement<T>(
        [&](T* const* at) {
          const Wide<T> dz = static_cast<Wide<T>>(*at[1]);
          dshift += dz;
          dscale += dz * (static_cast<Wide<T>>(*at[0]) - mean) * inverse;
        },
        in, gradient);
    const Wide<T> factor = WideAt<T>(call.inputs[1], c) * inverse;
    ForEachElement<T>(
        [&](T* const* at) {
          const Wide<T> normal = (static_cast<Wide<T>>(*at[0]) - mean) * inverse;
          *at[2] = Narrow<T>(
              factor * (static_cast<Wide<T>>(*at[1]) - dshift / count - normal * dscale / count));
        },
        in, gradient, Channel(call.outputs[0], c));
    At<T>(call.outputs[1], c) = Narrow<T>(dscale);
    At<T>(call.outputs[2], c) = Narrow<T>(dshift);
  }
}

// T is the statistics' type.
template <typename T>
void BatchNormRunning(const KernelCall& call) {
  const auto& a = call.attrs<RunningAverageAttributes>();
  const Wide<T> momentum = a.momentum, keep = 1 - momentum;
  const Wide<T> correction =
      a.count > 1 ? static_cast<Wide<T>>(a.count) / static_cast<Wide<T>>(a.count - 1) : 1;
  for (int64_t c = 0; c < call.outputs[0].dims[0]; ++c) {
    const Wide<T> inverse = At<T>(call.inputs[1], c);
    const Wide<T> spread = 1 / (inverse * inverse) - static_cast<Wide<T>>(a.epsilon);
    const Wide<T> variance = spread < 0 ? 0 : spread;  // rounding of a variance of zero
    T& running_mean = At<T>(call.outputs[0], c);
    T& running_variance = At<T>(call.outputs[1], c);
    running_mean = Narrow<T>(keep * running_mean + momentum * At<T>(call.inputs[0], c));
    running_variance = Narrow<T>(keep * running_variance + momentum * variance * correction);
  }
}

// visit(row, lines...) for each row along the last axis; rows are counted row-major.
template <typename T, typename S, typename Visit>
void ForEachRow(const KernelCall& call, const TensorRef& mean, const TensorRef& inverse,
                Visit visit) {
  const TensorRef& x = call.inputs[0];
  const int last = x.rank - 1;
  int64_t index[kMaxRank] = {};
  for (int64_t row = 0; row < mean.NumElements(); ++row) {
    int64_t mean_at = 0, inverse_at = 0;
    for (int i = 0; i < last; ++i) {
      mean_at += index[i] * mean.strides[i];
      inverse_at += index[i] * inverse.strides[i];
    }
    auto line = [&](const TensorRef& ref) {
      int64_t offset = 0;
      for (int i = 0; i < last; ++i) offset += index[i] * ref.strides[i];
      return Line<T>(ref.as<T>() + offset, ref.strides[last]);
    };
    visit(line, mean.as<S>()[mean_at], inverse.as<S>()[inverse_at]);
    for (int i = last - 1; i >= 0 && ++index[i] == x.dims[i]; --i) index[i] = 0;
  }
}

template <typename T>
void LayerNorm(const KernelCall& call) {
  using S = Statistic<T>;
  const Wide<T> epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const int64_t n = call.inputs[0].dims[call.inputs[0].rank - 1];
  ForEachRow<T, S>(
      call, call.outputs[1], call.outputs[2], [&](auto line, S& mean_out, S& inverse_out) {
        const Line<T> x = line(call.inputs[0]), z = line(call.outputs[0]);
        Wide<T> mean = 0, variance = 0;
        for (int64_t i = 0; i < n; ++i) mean += x.wide(i);
        mean /= static_cast<Wide<T>>(n);
        for (int64_t i = 0; i < n; ++i) variance += (x.wide(i) - mean) * (x.wide(i) - mean);
        const Wide<T> inverse = 1 / std::sqrt(variance / static_cast<Wide<T>>(n) + epsilon);
        mean_out = static_cast<S>(mean);
        inverse_out = static_cast<S>(inverse);
        for (int64_t i = 0; i < n; ++i) {
          z.Set(i, (x.wide(i) - mean) * inverse * WideAt<T>(call.inputs[1], i) +
                       WideAt<T>(call.inputs[2], i));
        }
      });
}

// The parameters' gradients are summed row by row in their own pass over the rows for each element.
template <typename T>
void LayerNormGrad(const KernelCall& call) {
  using S = Statistic<T>;
  const int64_t n = call.inputs[0].dims[call.inputs[0].rank - 1];
  const TensorRef& scale = call.inputs[1];
  for (int64_t i = 0; i < n; ++i) {
    Wide<T> dscale = 0, dshift = 0;
    ForEachRow<T, S>(call, call.inputs[2], call.inputs[3], [&](auto line, S mean, S inverse) {
      const Wide<T> dz = line(call.inputs[4]).wide(i);
      dshift += dz;
      dscale += dz * (line(call.inputs[0]).wide(i) - mean) * inverse;
    });
    At<T>(call.outputs[1], i) = Narrow<T>(dscale);
    At<T>(call.outputs[2], i) = Narrow<T>(dshift);
  }
  ForEachRow<T, S>(call, call.inputs[2], call.inputs[3], [&](auto line, S mean, S inverse) {
    const Line<T> x = line(call.inputs[0]), dz = line(call.inputs[4]);
    Wide<T> sum = 0, products = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Wide<T> gradient = dz.wide(i) * WideAt<T>(scale, i);
      sum += gradient;
      products += gradient * (x.wide(i) - mean) * inverse;
    }
    const Wide<T> count = static_cast<Wide<T>>(n);
    for (int64_t i = 0; i < n; ++i) {
      const Wide<T> normal = (x.wide(i) - mean) * inverse;
      line(call.outputs[0])
          .Set(i, inverse *
                      (dz.wide(i) * WideAt<T>(scale, i) - sum / count - normal * products / count));
    }
  });
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kBatchNorm, BatchNorm),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kBatchNormInference, BatchNormInference),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kBatchNormGrad, BatchNormGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kLayerNorm, LayerNorm),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kLayerNormGrad, LayerNormGrad),
    ReferenceKernel(OpCode::kBatchNormRunning, DType::kFloat32, &BatchNormRunning<float>),
    ReferenceKernel(OpCode::kBatchNormRunning, DType::kFloat64, &BatchNormRunning<double>),
});

}  // namespace
}  // namespace tidepool
