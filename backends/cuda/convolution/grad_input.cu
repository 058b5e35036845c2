// The gradient of a convolution's input: input pixels x channels of a group, summed over the taps and
// filters of the group. Strides leave out what no window reads.
#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/convolution/conv_geometry.h"
#include "tidepool/backends/cuda/convolution/convolution_product.h"

namespace tidepool::cuda {
namespace {

template <typename T>
struct GradInputProduct {
  using Element = T;
  using W = Compute<T>;
  static constexpr bool kFewRows = false;
  static constexpr bool kLeftAlongDepth = true, kRightAlongDepth = false;
  struct Left {
    const T* image;  // of the gradient; null beyond the last
    int row, column;
  };
  using LeftDepth = Tap;
  using Right = const T*;
  using RightDepth = int64_t;

  ConvGeometry g;
  int64_t rows, columns, depth;
  const T* gradient;
  const T* filter;
  T* result;

  __device__ Left FindLeft(int group, int64_t row) const {
    if (row >= rows) return {nullptr, 0, 0};
    const Pixel p = FindPixel(row, g.height, g.width);
    return {gradient + p.image * g.out_height * g.out_width * g.filters + group * g.group_filters,
            p.row + g.pad_top, p.column + g.pad_left};
  }
  // A tap's channel is a filter of the group here.
  __device__ LeftDepth FindLeftDepth(int, int64_t k) const {
    Tap t = FindTap(static_cast<int>(k), g.kernel_width, g.group_filters);
    t.row *= g.dilation_height;
    t.column *= g.dilation_width;
    return t;
  }
  __device__ const T* AtLeft(const Left& l, const Tap& t) const {
    if (l.image == nullptr) return nullptr;
    const int i = OutputFor(l.row - t.row, g.stride_height, g.out_height);
    const int j = OutputFor(l.column - t.column, g.stride_width, g.out_width);
    if (i < 0 || j < 0) return nullptr;
    return l.image + (static_cast<int64_t>(i) * g.out_width + j) * g.filters + t.channel;
  }
  __device__ Right FindRight(int group, int64_t column) const {
    return column < columns ? filter + group * g.group_filters * g.taps() + column : nullptr;
  }
  __device__ RightDepth FindRightDepth(int, int64_t k) const {
    const Tap t = FindTap(static_cast<int>(k), g.kernel_width, g.group_filters);
    return t.channel * g.taps() +
           (static_cast<int64_t>(t.row) * g.kernel_width + t.column) * g.group_channels;
  }
  __device__ const T* AtRight(Right r, int64_t offset) const {
    return r == nullptr ? nullptr : r + offset;
  }
  __device__ void Store(int group, int64_t, int64_t row, int64_t column, W value) const {
    result[row * g.channels + group * g.group_channels + column] = Narrow<T>(value);
  }
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    DirectGradInput(ConvGeometry g, int64_t count, const T* gradient, const T* filter, T* result) {
  using W = Compute<T>;
  const int64_t taps = g.taps();
  for (int64_t o = GlobalThread(); o < count; o += GlobalThreads()) {
    const int64_t pixel = Quotient(o, g.channels);
    const int channel = static_cast<int>(o - pixel * g.channels);
    const int group = channel / g.group_channels, c = channel - group * g.group_channels;
    const Pixel p = FindPixel(pixel, g.height, g.width);
    const T* const image =
        gradient + p.image * g.out_height * g.out_width * g.filters + group * g.group_filters;
    const T* const weights = filter + group * g.group_filters * taps + c;
    W sum = 0;
    for (int r = 0; r < g.kernel_height; ++r) {
      const int i =
          OutputFor(p.row + g.pad_top - r * g.dilation_height, g.stride_height, g.out_height);
      if (i < 0) continue;
      for (int s = 0; s < g.kernel_width; ++s) {
        const int j =
            OutputFor(p.column + g.pad_left - s * g.dilation_width, g.stride_width, g.out_width);
        if (j < 0) continue;
        const T* const slope = image + (static_cast<int64_t>(i) * g.out_width + j) * g.filters;
        const T* const w =
            weights + (static_cast<int64_t>(r) * g.kernel_width + s) * g.group_channels;
        for (int f = 0; f < g.group_filters; ++f) sum += Wide(slope[f]) * Wide(w[f * taps]);
      }
    }
    result[o] = Narrow<T>(sum);
  }
}

template <typename T>
void Conv2dGradInput(const KernelCall& call) {
  const ConvGeometry g =
      GeometryOf(call.attrs<Conv2dAttributes>(), call.outputs[0], call.inputs[1], call.inputs[0]);
  const int64_t count = g.pixels() * g.channels;
  if (count == 0) return;
  const T* const gradient = call.inputs[0].as<T>();
  const T* const filter = call.inputs[1].as<T>();
  T* const result = call.outputs[0].as<T>();
  const cudaStream_t stream = StreamOf(call);
  const int64_t depth = static_cast<int64_t>(g.kernel_height) * g.kernel_width * g.group_filters;
  if (g.groups > 1 && (g.group_channels < 16 || depth < 16)) {
    Launch(DirectGradInput<T>, BlocksFor(count, kBlockThreads, 1 << 16), kBlockThreads, 0, stream,
           g, count, gradient, filter, result);
    return;
  }
  const GradInputProduct<T> product{g,      g.pixels(), g.group_channels, depth, gradient,
                                    filter, result};
  QueueProduct(product, g.groups, 1,
               IsPacked(g.group_channels, filter) && IsPacked(g.group_filters, gradient), stream);
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kConv2dGradInput, Conv2dGradInput),
});

}  // namespace
}  // namespace tidepool::cuda
