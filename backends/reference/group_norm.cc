// Normalisation of groups of channels, and by the root of the mean square, in the wide type.
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

// Where the element of the last axis `channel` of row `row` lies; rows are counted row-major.
int64_t Offset(const TensorRef& ref, int64_t row, int64_t channel) {
  int64_t offset = channel * ref.strides[ref.rank - 1];
  for (int i = ref.rank - 2; i >= 0; --i) {
    offset += row % ref.dims[i] * ref.strides[i];
    row /= ref.dims[i];
  }
  return offset;
}

template <typename T>
Wide<T> WideAt(const TensorRef& ref, int64_t row, int64_t channel) {
  return static_cast<Wide<T>>(ref.as<T>()[Offset(ref, row, channel)]);
}

// Elements with statistics of their own: channels [first, first + width) of some rows.
struct Part {
  int64_t row, rows, first, width, group;

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (int64_t r = row; r < row + rows; ++r) {
      for (int64_t c = first; c < first + width; ++c) visit(r, c);
    }
  }
};

template <typename Visit>
void ForEachGroup(const TensorRef& x, int64_t groups, Visit visit) {
  const int64_t batch = x.dims[0], width = x.dims[x.rank - 1] / groups;
  int64_t rows = 1;
  for (int i = 1; i < x.rank - 1; ++i) rows *= x.dims[i];
  for (int64_t item = 0; item < batch; ++item) {
    for (int64_t group = 0; group < groups; ++group) {
      visit(item, Part{item * rows, rows, group * width, width, group});
    }
  }
}

template <typename T>
void GroupNorm(const KernelCall& call) {
  const auto& a = call.attrs<GroupNormAttributes>();
  const TensorRef &x = call.inputs[0], &z = call.outputs[0];
  ForEachGroup(x, a.groups, [&](int64_t item, const Part& part) {
    const Wide<T> count = static_cast<Wide<T>>(part.rows * part.width);
    Wide<T> mean = 0, variance = 0;
    part.ForEach([&](int64_t r, int64_t c) { mean += WideAt<T>(x, r, c); });
    mean /= count;
    part.ForEach([&](int64_t r, int64_t c) {
      const Wide<T> d = WideAt<T>(x, r, c) - mean;
      variance += d * d;
    });
    const Wide<T> inverse = 1 / std::sqrt(variance / count + static_cast<Wide<T>>(a.epsilon));
    At<Statistic<T>>(call.outputs[1], item, part.group) = static_cast<Statistic<T>>(mean);
    At<Statistic<T>>(call.outputs[2], item, part.group) = static_cast<Statistic<T>>(inverse);
    part.ForEach([&](int64_t r, int64_t c) {
      z.as<T>()[Offset(z, r, c)] = Narrow<T>((WideAt<T>(x, r, c) - mean) * inverse *
                                                 static_cast<Wide<T>>(At<T>(call.inputs[1], c)) +
                                             static_cast<Wide<T>>(At<T>(call.inputs[2], c)));
    });
  });
}

// Gradients of normal * scale + shift, where the mean is a number or that of the part.
template <typename T>
void PartGradient(const KernelCall& call, const Part& part, const TensorRef& dz, bool has_mean,
                  Wide<T> mean, Wide<T> inverse, Wide<T>* dscale, Wide<T>* dshift) {
  const TensorRef &x = call.inputs[0], &scale = call.inputs[1], &dx = call.outputs[0];
  const Wide<T> count = static_cast<Wide<T>>(part.rows * part.width);
  Wide<T> sum = 0, products = 0;
  part.ForEach([&](int64_t r, int64_t c) {
    const Wide<T> normal = (WideAt<T>(x, r, c) - mean) * inverse, gradient = WideAt<T>(dz, r, c);
    const Wide<T> scaled = gradient * static_cast<Wide<T>>(At<T>(scale, c));
    dscale[c] += gradient * normal;
    dshift[c] += gradient;
    sum += scaled;
    products += scaled * normal;
  });
  if (!has_mean) sum = 0;
  part.ForEach([&](int64_t r, int64_t c) {
    const Wide<T> normal = (WideAt<T>(x, r, c) - mean) * inverse;
    dx.as<T>()[Offset(dx, r, c)] =
        Narrow<T>(inverse * (WideAt<T>(dz, r, c) * static_cast<Wide<T>>(At<T>(scale, c)) -
                             sum / count - normal * products / count));
  });
}

template <typename T>
void GroupNormGrad(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &means = call.inputs[2];
  std::vector<Wide<T>> dscale(x.dims[x.rank - 1]), dshift(dscale);
  ForEachGroup(x, means.dims[1], [&](int64_t item, const Part& part) {
    PartGradient<T>(call, part, call.inputs[4], true, At<Statistic<T>>(means, item, part.group),
                    At<Statistic<T>>(call.inputs[3], item, part.group), dscale.data(),
                    dshift.data());
  });
  for (size_t c = 0; c < dscale.size(); ++c) {
    At<T>(call.outputs[1], c) = Narrow<T>(dscale[c]);
    At<T>(call.outputs[2], c) = Narrow<T>(dshift[c]);
  }
}

int64_t RowsOf(const TensorRef& x) {
  int64_t rows = 1;
  for (int i = 0; i < x.rank - 1; ++i) rows *= x.dims[i];
  return rows;
}

// Of the statistic of a row.
int64_t RowOffset(const TensorRef& ref, int64_t row) {
  int64_t offset = 0;
  for (int i = ref.rank - 1; i >= 0; --i) {
    offset += row % ref.dims[i] * ref.strides[i];
    row /= ref.dims[i];
  }
  return offset;
}

template <typename T>
void RmsNorm(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &z = call.outputs[0];
  const int64_t n = x.dims[x.rank - 1];
  const Wide<T> epsilon = call.attrs<NormalizationAttributes>().epsilon;
  for (int64_t row = 0; row < RowsOf(x); ++row) {
    Wide<T> squares = 0;
    for (int64_t c = 0; c < n; ++c) squares += WideAt<T>(x, row, c) * WideAt<T>(x, row, c);
    const Wide<T> inverse = 1 / std::sqrt(squares / static_cast<Wide<T>>(n) + epsilon);
    call.outputs[1].as<Statistic<T>>()[RowOffset(call.outputs[1], row)] =
        static_cast<Statistic<T>>(inverse);
    for (int64_t c = 0; c < n; ++c) {
      z.as<T>()[Offset(z, row, c)] = Narrow<T>(WideAt<T>(x, row, c) * inverse *
                                               static_cast<Wide<T>>(At<T>(call.inputs[1], c)));
    }
  }
}

template <typename T>
void RmsNormGrad(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  std::vector<Wide<T>> dscale(x.dims[x.rank - 1]), unused(dscale);
  for (int64_t row = 0; row < RowsOf(x); ++row) {
    const Wide<T> inverse = call.inputs[2].as<Statistic<T>>()[RowOffset(call.inputs[2], row)];
    PartGradient<T>(call, {row, 1, 0, x.dims[x.rank - 1], 0}, call.inputs[3], false, 0, inverse,
                    dscale.data(), unused.data());
  }
  for (size_t c = 0; c < dscale.size(); ++c) At<T>(call.outputs[1], c) = Narrow<T>(dscale[c]);
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kGroupNorm, GroupNorm),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kGroupNormGrad, GroupNormGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kRmsNorm, RmsNorm),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kRmsNormGrad, RmsNormGrad),
});

}  // namespace
}  // namespace tidepool
