// Convolution and its gradients by their definition, in the wide type. Padding contributes nothing:
// it is left out, not multiplied by zero.
#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool {
namespace {

// Which input position a tap of the kernel reads for an output position, and which input channels
// belong to a filter.
struct Geometry {
  const Conv2dAttributes& a;
  int64_t height, width;  // of the input
  int64_t out_height, out_width;
  int64_t kernel_height, kernel_width;
  int64_t group_channels, group_filters;

  int64_t Row(int64_t out, int64_t tap) const {
    return out * a.stride_height + tap * a.dilation_height - a.pad_top;
  }
  int64_t Column(int64_t out, int64_t tap) const {
    return out * a.stride_width + tap * a.dilation_width - a.pad_left;
  }
  bool Inside(int64_t row, int64_t column) const {
    return row >= 0 && row < height && column >= 0 && column < width;
  }
  // The input channel that channel c of filter f multiplies.
  int64_t Channel(int64_t f, int64_t c) const { return f / group_filters * group_channels + c; }
};

Geometry MakeGeometry(const KernelCall& call, const TensorRef& input, const TensorRef& filter,
                      const TensorRef& output) {
  const auto& a = call.attrs<Conv2dAttributes>();
  return {a,
          input.dims[1],
          input.dims[2],
          output.dims[1],
          output.dims[2],
          filter.dims[1],
          filter.dims[2],
          filter.dims[3],
          filter.dims[0] / a.groups};
}

template <typename T, typename... Index>
Wide<T> WideAt(const TensorRef& ref, Index... index) {
  return static_cast<Wide<T>>(At<T>(ref, index...));
}

template <typename T>
void Conv2d(const KernelCall& call) {
  const TensorRef& input = call.inputs[0];
  const TensorRef& filter = call.inputs[1];
  const TensorRef& bias = call.inputs[2];
  const TensorRef& output = call.outputs[0];
  const Geometry g = MakeGeometry(call, input, filter, output);
  for (int64_t n = 0; n < output.dims[0]; ++n) {
    for (int64_t i = 0; i < g.out_height; ++i) {
      for (int64_t j = 0; j < g.out_width; ++j) {
        for (int64_t f = 0; f < output.dims[3]; ++f) {
          Wide<T> sum = bias.present ? WideAt<T>(bias, f) : 0;
          for (int64_t r = 0; r < g.kernel_height; ++r) {
            for (int64_t s = 0; s < g.kernel_width; ++s) {
              const int64_t row = g.Row(i, r);
              const int64_t column = g.Column(j, s);
              if (!g.Inside(row, column)) continue;
              for (int64_t c = 0; c < g.group_channels; ++c) {
                sum += WideAt<T>(input, n, row, column, g.Channel(f, c)) *
                       WideAt<T>(filter, f, r, s, c);
              }
            }
          }
          if (g.a.relu && sum <= 0) sum = 0;
          At<T>(output, n, i, j, f) = Narrow<T>(sum);
        }
      }
    }
  }
}

// The output position whose window puts `tap` on `position`; false when there is none.
bool OutputFor(int64_t position, int64_t tap, int64_t stride, int64_t dilation, int64_t pad,
               int64_t out_size, int64_t* out) {
  const int64_t shifted = position + pad - tap * dilation;
  if (shifted < 0 || shifted % stride != 0) return false;
  *out = shifted / stride;
  return *out < out_size;
}

template <typename T>
void Conv2dGradInput(const KernelCall& call) {
  const TensorRef& gradient = call.inputs[0];
  const TensorRef& filter = call.inputs[1];
  const TensorRef& result = call.outputs[0];
  const Geometry g = MakeGeometry(call, result, filter, gradient);
  for (int64_t n = 0; n < result.dims[0]; ++n) {
    for (int64_t row = 0; row < g.height; ++row) {
      for (int64_t column = 0; column < g.width; ++column) {
        for (int64_t channel = 0; channel < result.dims[3]; ++channel) {
          const int64_t group = channel / g.group_channels, c = channel % g.group_channels;
          Wide<T> sum = 0;
          for (int64_t r = 0; r < g.kernel_height; ++r) {
            int64_t i, j;
            if (!OutputFor(row, r, g.a.stride_height, g.a.dilation_height, g.a.pad_top,
                           g.out_height, &i)) {
              continue;
            }
            for (int64_t s = 0; s < g.kernel_width; ++s) {
              if (!OutputFor(column, s, g.a.stride_width, g.a.dilation_width, g.a.pad_left,
                             g.out_width, &j)) {
                continue;
              }
              for (int64_t k = 0; k < g.group_filters; ++k) {
                const int64_t f = group * g.group_filters + k;
                sum += WideAt<T>(gradient, n, i, j, f) * WideAt<T>(filter, f, r, s, c);
              }
            }
          }
          At<T>(result, n, row, column, channel) = Narrow<T>(sum);
        }
      }
    }
  }
}

template <typename T>
void Conv2dGradFilter(const KernelCall& call) {
  const TensorRef& input = call.inputs[0];
  const TensorRef& gradient = call.inputs[1];
  const TensorRef& result = call.outputs[0];
  const Geometry g = MakeGeometry(call, input, result, gradient);
  for (int64_t f = 0; f < result.dims[0]; ++f) {
    for (int64_t r = 0; r < g.kernel_height; ++r) {
      for (int64_t s = 0; s < g.kernel_width; ++s) {
        for (int64_t c = 0; c < result.dims[3]; ++c) {
          Wide<T> sum = g.a.accumulate ? WideAt<T>(result, f, r, s, c) : 0;
          for (int64_t n = 0; n < input.dims[0]; ++n) {
            for (int64_t i = 0; i < g.out_height; ++i) {
              for (int64_t j = 0; j < g.out_width; ++j) {
                const int64_t row = g.Row(i, r);
                const int64_t column = g.Column(j, s);
                if (!g.Inside(row, column)) continue;
                sum += WideAt<T>(input, n, row, column, g.Channel(f, c)) *
                       WideAt<T>(gradient, n, i, j, f);
              }
            }
          }
          At<T>(result, f, r, s, c) = Narrow<T>(sum);
        }
      }
    }
  }
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kConv2d, Conv2d),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kConv2dGradInput, Conv2dGradInput),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kConv2dGradFilter, Conv2dGradFilter),
});

}  // namespace
}  // namespace tidepool
