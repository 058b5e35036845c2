// The convolution: output pixels x filters, summed over taps. Filters that see few channels each
// (depthwise, small groups) are summed directly, a thread per output element.
#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/convolution/conv_geometry.h"
#include "tidepool/backends/cuda/convolution/convolution_product.h"

namespace tidepool::cuda {
namespace {

template <typename T>
struct ForwardProduct {
  using Element = T;
  using W = Compute<T>;
  static constexpr bool kFewRows = false;
  static constexpr bool kLeftAlongDepth = true, kRightAlongDepth = true;
  struct Left {
    const T* image;  // null beyond the last
    int row, column;
  };
  using LeftDepth = Tap;
  using Right = const T*;
  using RightDepth = int64_t;

  ConvGeometry g;
  int64_t rows, columns, depth;
  const T* input;
  const T* filter;
  const T* bias;  // may be null
  T* output;
  bool relu;

  __device__ Left FindLeft(int group, int64_t row) const {
    if (row >= rows) return {nullptr, 0, 0};
    const Pixel p = FindPixel(row, g.out_height, g.out_width);
    return {input + p.image * g.height * g.width * g.channels + group * g.group_channels,
            p.row * g.stride_height - g.pad_top, p.column * g.stride_width - g.pad_left};
  }
  __device__ LeftDepth FindLeftDepth(int, int64_t k) const {
    Tap t = FindTap(static_cast<int>(k), g.kernel_width, g.group_channels);
    t.row *= g.dilation_height;
    t.column *= g.dilation_width;
    return t;
  }
  __device__ const T* AtLeft(const Left& l, const Tap& t) const {
    const int row = l.row + t.row, column = l.column + t.column;
    if (l.image == nullptr || !g.Inside(row, column)) return nullptr;
    return l.image + (static_cast<int64_t>(row) * g.width + column) * g.channels + t.channel;
  }
  __device__ Right FindRight(int group, int64_t column) const {
    return column < columns ? filter + (group * columns + column) * depth : nullptr;
  }
  __device__ RightDepth FindRightDepth(int, int64_t k) const { return k; }
  __device__ const T* AtRight(Right r, int64_t k) const { return r == nullptr ? nullptr : r + k; }
  __device__ void Store(int group, int64_t, int64_t row, int64_t column, W value) const {
    const int64_t f = group * columns + column;
    if (bias != nullptr) value += Wide(bias[f]);
    if (relu && value <= 0) value = 0;
    output[row * g.filters + f] = Narrow<T>(value);
  }
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    DirectForward(ConvGeometry g, int64_t count, const T* input, const T* filter, const T* bias,
                  T* output, bool relu) {
  using W = Compute<T>;
  for (int64_t o = GlobalThread(); o < count; o += GlobalThreads()) {
    const int64_t pixel = Quotient(o, g.filters);
    const int f = static_cast<int>(o - pixel * g.filters);
    const Pixel p = FindPixel(pixel, g.out_height, g.out_width);
    const T* const image =
        input + p.image * g.height * g.width * g.channels + f / g.group_filters * g.group_channels;
    const T* weights = filter + f * g.taps();
    const int first_row = p.row * g.stride_height - g.pad_top;
    const int first_column = p.column * g.stride_width - g.pad_left;
    W sum = bias != nullptr ? Wide(bias[f]) : W{0};
    for (int r = 0; r < g.kernel_height; ++r) {
      const int row = first_row + r * g.dilation_height;
      for (int s = 0; s < g.kernel_width; ++s, weights += g.group_channels) {
        const int column = first_column + s * g.dilation_width;
        if (!g.Inside(row, column)) continue;
        const T* const x = image + (static_cast<int64_t>(row) * g.width + column) * g.channels;
        for (int c = 0; c < g.group_channels; ++c) sum += Wide(x[c]) * Wide(weights[c]);
      }
    }
    if (relu && sum <= 0) sum = 0;
    output[o] = Narrow<T>(sum);
  }
}

template <typename T>
void Conv2d(const KernelCall& call) {
  const auto& a = call.attrs<Conv2dAttributes>();
  const ConvGeometry g = GeometryOf(a, call.inputs[0], call.inputs[1], call.outputs[0]);
  const int64_t count = g.out_pixels() * g.filters;
  if (count == 0) return;
  const T* const input = call.inputs[0].as<T>();
  const T* const filter = call.inputs[1].as<T>();
  const T* const bias = call.inputs[2].present ? call.inputs[2].as<T>() : nullptr;
  T* const output = call.outputs[0].as<T>();
  const cudaStream_t stream = StreamOf(call);
  if (g.groups > 1 && (g.group_filters < 16 || g.taps() < 16)) {
    Launch(DirectForward<T>, BlocksFor(count, kBlockThreads, 1 << 16), kBlockThreads, 0, stream, g,
           count, input, filter, bias, output, a.relu);
    return;
  }
  const ForwardProduct<T> product{g,      g.out_pixels(), g.group_filters, g.taps(), input,
                                  filter, bias,           output,          a.relu};
  QueueProduct(product, g.groups, 1,
               IsPacked(g.group_channels, input) && IsPacked(g.group_channels, filter), stream);
}

const KernelRegistrar registrar({TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kConv2d, Conv2d)});

}  // namespace
}  // namespace tidepool::cuda
