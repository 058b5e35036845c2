// The gradient of a convolution's filters: filters x taps of a group, summed over output pixels in
// parts that a second kernel adds up in order. Small groups are a reduction over pixels.
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/convolution/conv_geometry.h"
#include "tidepool/backends/cuda/convolution/convolution_product.h"
#include "tidepool/backends/cuda/reduction/reduce_kernel.h"

namespace tidepool::cuda {
namespace {

template <typename T>
struct GradFilterProduct {
  using Element = T;
  using W = Compute<T>;
  static constexpr bool kFewRows = true;
  static constexpr bool kLeftAlongDepth = false, kRightAlongDepth = false;
  using Left = const T*;  // null beyond the last
  using LeftDepth = int64_t;
  struct Right {
    int row, column;
    int channel;  // -1 beyond the last
  };
  struct RightDepth {
    const T* image;
    int row, column;
  };

  ConvGeometry g;
  int64_t rows, columns, depth;
  const T* input;
  const T* gradient;
  W* parts;  // [splits, filters, taps]

  __device__ Left FindLeft(int group, int64_t row) const {
    return row < rows ? gradient + group * g.group_filters + row : nullptr;
  }
  __device__ LeftDepth FindLeftDepth(int, int64_t k) const { return k * g.filters; }
  __device__ const T* AtLeft(Left l, int64_t offset) const {
    return l == nullptr ? nullptr : l + offset;
  }
  __device__ Right FindRight(int, int64_t column) const {
    if (column >= columns) return {0, 0, -1};
    const Tap t = FindTap(static_cast<int>(column), g.kernel_width, g.group_channels);
    return {t.row * g.dilation_height, t.column * g.dilation_width, t.channel};
  }
  __device__ RightDepth FindRightDepth(int group, int64_t k) const {
    const Pixel p = FindPixel(k, g.out_height, g.out_width);
    return {input + p.image * g.height * g.width * g.channels + group * g.group_channels,
            p.row * g.stride_height - g.pad_top, p.column * g.stride_width - g.pad_left};
  }
  __device__ const T* AtRight(const Right& r, const RightDepth& d) const {
    const int row = d.row + r.row, column = d.column + r.column;
    if (r.channel < 0 || !g.Inside(row, column)) return nullptr;
    return d.image + (static_cast<int64_t>(row) * g.width + column) * g.channels + r.channel;
  }
  __device__ void Store(int group, int64_t split, int64_t row, int64_t column, W value) const {
    parts[((split * g.groups + group) * rows + row) * columns + column] = value;
  }
};

// Adds the parts in order, the earlier gradient first where they accumulate.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    AddParts(int64_t count, int64_t splits, const Compute<T>* parts, T* result, bool accumulate) {
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads()) {
    double sum = accumulate ? static_cast<double>(Wide(result[i])) : 0;
    for (int64_t s = 0; s < splits; ++s) sum += static_cast<double>(parts[s * count + i]);
    result[i] = Narrow<T>(sum);
  }
}

// Outputs are numbered with the filter fastest: neighbours read neighbouring gradients.
template <typename T>
struct GradFilterOp {
  using State = double;
  struct Context {
    int64_t result;
    int filter, row, column, channel;
  };
  struct Value {
    T x, slope;
  };
  ConvGeometry g;
  const T* input;
  const T* gradient;
  T* output;
  bool accumulate;

  __device__ Context Begin(int64_t o, int64_t) const {
    const int tap = static_cast<int>(o / g.filters);
    const int f = static_cast<int>(o - static_cast<int64_t>(tap) * g.filters);
    const Tap t = FindTap(tap, g.kernel_width, g.group_channels);
    return {f * g.taps() + tap, f, t.row * g.dilation_height - g.pad_top,
            t.column * g.dilation_width - g.pad_left,
            f / g.group_filters * g.group_channels + t.channel};
  }
  __device__ State Init() const { return 0; }
  __device__ Value Load(const Context& c, int64_t, int64_t pixel) const {
    const Pixel p = FindPixel(pixel, g.out_height, g.out_width);
    const int row = p.row * g.stride_height + c.row, column = p.column * g.stride_width + c.column;
    if (!g.Inside(row, column)) return {T(0.0f), T(0.0f)};
    return {input[((p.image * g.height + row) * g.width + column) * g.channels + c.channel],
            gradient[pixel * g.filters + c.filter]};
  }
  __device__ void Add(const Context&, const Value& v, int64_t, State* state) const {
    *state = fma(static_cast<double>(Wide(v.x)), static_cast<double>(Wide(v.slope)), *state);
  }
  __device__ State Merge(State a, State b) const { return a + b; }
  __device__ void Finish(const Context& c, int64_t, int64_t, State state) const {
    if (accumulate) state += static_cast<double>(Wide(output[c.result]));
    output[c.result] = Narrow<T>(state);
  }
};

constexpr int64_t kMostParts = 256;

struct Plan {
  explicit Plan(const KernelCall& call)
      : g(GeometryOf(call.attrs<Conv2dAttributes>(), call.inputs[0], call.outputs[0],
                     call.inputs[1])),
        direct(g.groups > 1 && (g.group_filters < 16 || g.taps() < 16)) {}

  int64_t elements() const { return g.filters * g.taps(); }
  ReducePlan reduction() const { return PlanOfOutputs(elements(), g.out_pixels()); }
  template <typename T>
  int64_t MostParts() const {
    return cuda::MostParts<T>(g.group_filters, g.taps(), g.out_pixels(), g.groups, kMostParts,
                              GradFilterProduct<T>::kFewRows);
  }

  ConvGeometry g;
  bool direct;
};

template <typename T>
size_t ScratchBytes(const KernelCall& call) {
  const Plan plan(call);
  if (plan.direct) return ReduceScratchBytes<GradFilterOp<T>>(plan.reduction());
  return static_cast<size_t>(plan.MostParts<T>() * plan.elements()) * sizeof(Compute<T>);
}

template <typename T>
void Conv2dGradFilter(const KernelCall& call) {
  const Plan plan(call);
  if (plan.elements() == 0) return;
  const ConvGeometry& g = plan.g;
  const bool accumulate = call.attrs<Conv2dAttributes>().accumulate;
  const T* const input = call.inputs[0].as<T>();
  const T* const gradient = call.inputs[1].as<T>();
  T* const result = call.outputs[0].as<T>();
  const cudaStream_t stream = StreamOf(call);
  if (plan.direct) {
    Reduce(GradFilterOp<T>{g, input, gradient, result, accumulate}, plan.reduction(), call.scratch,
           stream);
    return;
  }
  auto* const parts = static_cast<Compute<T>*>(call.scratch);
  const GradFilterProduct<T> product{g,     g.group_filters, g.taps(), g.out_pixels(),
                                     input, gradient,        parts};
  const int64_t splits = QueueProduct(
      product, g.groups, kMostParts,
      IsPacked(g.group_channels, input) && IsPacked(g.group_filters, gradient), stream);
  Launch(AddParts<T>, BlocksFor(plan.elements(), kBlockThreads), kBlockThreads, 0, stream,
         plan.elements(), splits, parts, result, accumulate);
}

const KernelRegistrar registrar({
    CudaKernel(OpCode::kConv2dGradFilter, DType::kFloat32, &Conv2dGradFilter<float>,
               &ScratchBytes<float>),
    CudaKernel(OpCode::kConv2dGradFilter, DType::kFloat64, &Conv2dGradFilter<double>,
               &ScratchBytes<double>),
    CudaKernel(OpCode::kConv2dGradFilter, DType::kFloat16, &Conv2dGradFilter<Float16>,
               &ScratchBytes<Float16>),
    CudaKernel(OpCode::kConv2dGradFilter, DType::kBFloat16, &Conv2dGradFilter<BFloat16>,
               &ScratchBytes<BFloat16>),
});

}  // namespace
}  // namespace tidepool::cuda
