// Normalisation in the wide type: the mean first, then the squares around it. Every operator normalises parts of the array and
// is told by what they are: a channel (batch), a row (layer), channels of an item (group). Statistics of 16-bit floats are f32.
#include <cmath>
#include <type_traits>
#include <vector>

#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool {
namespace {

template <typename T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Where element `index` of the first `axes` axes lies, counted row-major.
int64_t Offset(const TensorRef& ref, int axes, int64_t index) {
  int64_t offset = 0;
  for (int i = axes - 1; i >= 0; --i) {
    offset += index % ref.dims[i] * ref.strides[i];
    index /= ref.dims[i];
  }
  return offset;
}

// Of rows along the last axis.
template <typename T>
T& ElementAt(const TensorRef& ref, int64_t row, int64_t channel) {
  const int last = ref.rank - 1;
  return ref.as<T>()[Offset(ref, last, row) + channel * ref.strides[last]];
}
template <typename T>
Wide<T> WideAt(const TensorRef& ref, int64_t row, int64_t channel) {
  return static_cast<Wide<T>>(ElementAt<T>(ref, row, channel));
}
template <typename T>
Wide<T> WideAt(const TensorRef& parameter, int64_t channel) {
  return static_cast<Wide<T>>(At<T>(parameter, channel));
}

template <typename T>
Statistic<T>& StatisticAt(const TensorRef& ref, int64_t index) {
  return ref.as<Statistic<T>>()[Offset(ref, ref.rank, index)];
}

// Elements that have statistics of their own, the `index`-th: channels [first, first + width) of some rows.
struct Part {
  int64_t index, row, rows, first, width;

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (int64_t r = row; r < row + rows; ++r) {
      for (int64_t c = first; c < first + width; ++c) visit(r, c);
    }
  }
  template <typename T>
  Wide<T> count() const {
    return static_cast<Wide<T>>(rows * width);
  }
};

int64_t RowsOf(const TensorRef& x, int first_axis = 0) {
  int64_t rows = 1;
  for (int i = first_axis; i < x.rank - 1; ++i) rows *= x.dims[i];
  return rows;
}

// normal * scale + shift, of parts that `parts` visits. Without a mean, and shift, by the root of the mean square.
template <typename T, typename Parts>
void Normalize(const KernelCall& call, double its_epsilon, bool has_mean, Parts parts) {
  const TensorRef &x = call.inputs[0], &scale = call.inputs[1], &z = call.outputs[0];
  const Wide<T> epsilon = its_epsilon;
  parts(x, [&](const Part& part) {
    const Wide<T> count = part.count<T>();
    Wide<T> mean = 0, squares = 0;
    if (has_mean) {
      part.ForEach([&](int64_t r, int64_t c) { mean += WideAt<T>(x, r, c); });
      mean /= count;
      StatisticAt<T>(call.outputs[1], part.index) = static_cast<Statistic<T>>(mean);
    }
    part.ForEach([&](int64_t r, int64_t c) {
      const Wide<T> d = WideAt<T>(x, r, c) - mean;
      squares += d * d;
    });
    const Wide<T> inverse = 1 / std::sqrt(squares / count + epsilon);
    StatisticAt<T>(call.outputs[has_mean ? 2 : 1], part.index) = static_cast<Statistic<T>>(inverse);
    part.ForEach([&](int64_t r, int64_t c) {
      const Wide<T> scaled = (WideAt<T>(x, r, c) - mean) * inverse * WideAt<T>(scale, c);
      ElementAt<T>(z, r, c) = Narrow<T>(has_mean ? scaled + WideAt<T>(call.inputs[2], c) : scaled);
    });
  });
}

template <typename T, typename Parts>
void NormalizeGrad(const KernelCall& call, bool has_mean, Parts parts) {
  const TensorRef &x = call.inputs[0], &scale = call.inputs[1], &dx = call.outputs[0];
  const TensorRef &inverses = call.inputs[has_mean ? 3 : 2], &dz = call.inputs[has_mean ? 4 : 3];
  std::vector<Wide<T>> dscale(x.dims[x.rank - 1]), dshift(dscale);
  parts(x, [&](const Part& part) {
    const Wide<T> mean = has_mean ? StatisticAt<T>(call.inputs[2], part.index) : 0;
    const Wide<T> inverse = StatisticAt<T>(inverses, part.index), count = part.count<T>();
    const auto normal = [&](int64_t r, int64_t c) { return (WideAt<T>(x, r, c) - mean) * inverse; };
    const auto scaled = [&](int64_t r, int64_t c) {
      return WideAt<T>(dz, r, c) * WideAt<T>(scale, c);
    };
    Wide<T> sum = 0, products = 0;
    part.ForEach([&](int64_t r, int64_t c) {
      dscale[c] += WideAt<T>(dz, r, c) * normal(r, c);
      dshift[c] += WideAt<T>(dz, r, c);
      sum += scaled(r, c);
      products += scaled(r, c) * normal(r, c);
    });
    if (!has_mean) sum = 0;
    part.ForEach([&](int64_t r, int64_t c) {
      ElementAt<T>(dx, r, c) =
          Narrow<T>(inverse * (scaled(r, c) - sum / count - normal(r, c) * products / count));
    });
  });
  for (int64_t c = 0; c < x.dims[x.rank - 1]; ++c) {
    At<T>(call.outputs[1], c) = Narrow<T>(dscale[c]);
    if (has_mean) At<T>(call.outputs[2], c) = Narrow<T>(dshift[c]);
  }
}

constexpr auto kChannels = [](const TensorRef& x, auto visit) {
  for (int64_t c = 0; c < x.dims[x.rank - 1]; ++c) visit(Part{c, 0, RowsOf(x), c, 1});
};
constexpr auto kRows = [](const TensorRef& x, auto visit) {
  for (int64_t row = 0; row < RowsOf(x); ++row) visit(Part{row, row, 1, 0, x.dims[x.rank - 1]});
};
// Of each item.
auto Groups(int64_t groups) {
  return [groups](const TensorRef& x, auto visit) {
    const int64_t width = x.dims[x.rank - 1] / groups, rows = RowsOf(x, 1);
    for (int64_t i = 0; i < x.dims[0] * groups; ++i)
      visit(Part{i, i / groups * rows, rows, i % groups * width, width});
  };
}

template <typename T>
void BatchNorm(const KernelCall& call) {
  Normalize<T>(call, call.attrs<NormalizationAttributes>().epsilon, true, kChannels);
}
template <typename T>
void BatchNormGrad(const KernelCall& call) {
  NormalizeGrad<T>(call, true, kChannels);
}

template <typename T>
void LayerNorm(const KernelCall& call) {
  Normalize<T>(call, call.attrs<NormalizationAttributes>().epsilon, true, kRows);
}
template <typename T>
void LayerNormGrad(const KernelCall& call) {
  NormalizeGrad<T>(call, true, kRows);
}

template <typename T>
void RmsNorm(const KernelCall& call) {
  Normalize<T>(call, call.attrs<NormalizationAttributes>().epsilon, false, kRows);
}
template <typename T>
void RmsNormGrad(const KernelCall& call) {
  NormalizeGrad<T>(call, false, kRows);
}

template <typename T>
void GroupNorm(const KernelCall& call) {
  const auto& a = call.attrs<GroupNormAttributes>();
  Normalize<T>(call, a.epsilon, true, Groups(a.groups));
}
template <typename T>
void GroupNormGrad(const KernelCall& call) {
  NormalizeGrad<T>(call, true, Groups(call.inputs[2].dims[1]));
}

template <typename T>
void BatchNormInference(const KernelCall& call) {
  const Wide<T> epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const TensorRef &x = call.inputs[0], &z = call.outputs[0];
  kChannels(x, [&](const Part& part) {
    const Wide<T> mean = StatisticAt<T>(call.inputs[3], part.index);
    const Wide<T> variance = StatisticAt<T>(call.inputs[4], part.index);
    const Wide<T> factor = WideAt<T>(call.inputs[1], part.first) / std::sqrt(variance + epsilon);
    part.ForEach([&](int64_t r, int64_t c) {
      ElementAt<T>(z, r, c) =
          Narrow<T>((WideAt<T>(x, r, c) - mean) * factor + WideAt<T>(call.inputs[2], c));
    });
  });
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

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kBatchNorm, BatchNorm),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kBatchNormInference, BatchNormInference),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kBatchNormGrad, BatchNormGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kLayerNorm, LayerNorm),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kLayerNormGrad, LayerNormGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kGroupNorm, GroupNorm),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kGroupNormGrad, GroupNormGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kRmsNorm, RmsNorm),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kRmsNormGrad, RmsNormGrad),
    ReferenceKernel(OpCode::kBatchNormRunning, DType::kFloat32, &BatchNormRunning<float>),
    ReferenceKernel(OpCode::kBatchNormRunning, DType::kFloat64, &BatchNormRunning<double>),
});

}  // namespace
}  // namespace tidepool
