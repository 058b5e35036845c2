// Pooling of dense NHWC images with gradients; a thread makes an element, neighbouring threads
// neighbouring channels. Gradients are gathered, so their sums have the order of the windows.
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool::cuda {
namespace {

// Of an image and its windows; all fit 64 bits, most fit 32, which divide faster.
template <typename Index>
struct Geometry {
  Index count;  // elements that are made
  Index channels, height, width, out_height, out_width;
  Index kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left;
  bool count_include_pad, relu_grad;
};

template <typename Index>
struct Place {
  Index image, row, column, channel;
};
template <typename Index>
__device__ __forceinline__ Place<Index> FindPlace(Index i, Index height, Index width,
                                                  Index channels) {
  Place<Index> p;
  Index rest = i / channels;
  p.channel = i - rest * channels;
  Index next = rest / width;
  p.column = rest - next * width;
  p.image = next / height;
  p.row = next - p.image * height;
  return p;
}

// The part of window (i, j) that lies in the image.
template <typename Index>
struct Window {
  Index row, row_end, column, column_end;
  __device__ __forceinline__ Window(const Geometry<Index>& g, Index i, Index j) {
    row = i * g.stride_height - g.pad_top;
    column = j * g.stride_width - g.pad_left;
    row_end = min(row + g.kernel_height, g.height);
    column_end = min(column + g.kernel_width, g.width);
    row = max(row, Index{0});
    column = max(column, Index{0});
  }
  __device__ __forceinline__ Index Divisor(const Geometry<Index>& g) const {
    return g.count_include_pad ? g.kernel_height * g.kernel_width
                               : (row_end - row) * (column_end - column);
  }
};

// The windows along one axis that contain a position: from `first` on, below `end`.
template <typename Index>
struct WindowRange {
  Index first, end;
  __device__ __forceinline__ WindowRange(Index position, Index kernel, Index stride, Index pad,
                                         Index count) {
    const Index shifted = position + pad;
    first = shifted < kernel ? 0 : (shifted - kernel) / stride + 1;
    end = min(count, shifted / stride + 1);
  }
};

template <typename T, typename Index, bool kMax>
__global__ void __launch_bounds__(kBlockThreads)
    PoolKernel(Geometry<Index> g, const T* input, T* output) {
  using W = Compute<T>;
  for (int64_t o = GlobalThread(); o < g.count; o += GlobalThreads()) {
    const auto p = FindPlace(static_cast<Index>(o), g.out_height, g.out_width, g.channels);
    const Window<Index> w(g, p.row, p.column);
    W result = kMax ? -Infinity<W>() : W{0};
    for (Index row = w.row; row < w.row_end; ++row) {
      const T* x = input + (static_cast<int64_t>(p.image * g.height + row) * g.width + w.column) *
                               g.channels + p.channel;
      for (Index column = w.column; column < w.column_end; ++column, x += g.channels) {
        const W value = Wide(*x);
        if constexpr (kMax) {
          if (value > result || IsNaN(value)) result = value;
        } else {
          result += value;
        }
      }
    }
    output[o] = Narrow<T>(kMax ? result : result / static_cast<W>(w.Divisor(g)));
  }
}

// Whether (row, column) of value x is the first of its window that is largest. `largest` is the
// window's, NaN where it has one.
template <typename T, typename Index>
__device__ __forceinline__ bool IsFirstLargest(const Geometry<Index>& g, const Window<Index>& w,
                                               const T* image, Index row, Index column,
                                               Compute<T> x, Compute<T> largest) {
  auto is_largest = [&](Compute<T> value) {
    return value == largest || (IsNaN(value) && IsNaN(largest));
  };
  if (!is_largest(x)) return false;
  for (Index r = w.row; r <= row; ++r) {
    const Index end = r < row ? w.column_end : column;
    for (Index c = w.column; c < end; ++c) {
      if (is_largest(Wide(image[(static_cast<int64_t>(r) * g.width + c) * g.channels]))) {
        return false;
      }
    }
  }
  return true;
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kBlockThreads)
    MaxPoolGradKernel(Geometry<Index> g, const T* input, const T* output, const T* gradient,
                      T* result) {
  using W = Compute<T>;
  for (int64_t o = GlobalThread(); o < g.count; o += GlobalThreads()) {
    const auto p = FindPlace(static_cast<Index>(o), g.height, g.width, g.channels);
    const W x = Wide(input[o]);
    W total = 0;
    if (!g.relu_grad || x > 0) {
      const T* image =
          input + static_cast<int64_t>(p.image) * g.height * g.width * g.channels + p.channel;
      const WindowRange<Index> rows(p.row, g.kernel_height, g.stride_height, g.pad_top,
                                    g.out_height);
      const WindowRange<Index> columns(p.column, g.kernel_width, g.stride_width, g.pad_left,
                                       g.out_width);
      for (Index i = rows.first; i < rows.end; ++i) {
        for (Index j = columns.first; j < columns.end; ++j) {
          const int64_t at =
              (static_cast<int64_t>(p.image * g.out_height + i) * g.out_width + j) * g.channels +
              p.channel;
          if (IsFirstLargest<T, Index>(g, Window<Index>(g, i, j), image, p.row, p.column, x,
                                       Wide(output[at]))) {
            total += Wide(gradient[at]);
          }
        }
      }
    }
    result[o] = Narrow<T>(total);
  }
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kBlockThreads)
    AveragePoolGradKernel(Geometry<Index> g, const T* gradient, T* result) {
  using W = Compute<T>;
  for (int64_t o = GlobalThread(); o < g.count; o += GlobalThreads()) {
    const auto p = FindPlace(static_cast<Index>(o), g.height, g.width, g.channels);
    const WindowRange<Index> rows(p.row, g.kernel_height, g.stride_height, g.pad_top, g.out_height);
    const WindowRange<Index> columns(p.column, g.kernel_width, g.stride_width, g.pad_left,
                                     g.out_width);
    W total = 0;
    for (Index i = rows.first; i < rows.end; ++i) {
      for (Index j = columns.first; j < columns.end; ++j) {
        const int64_t at =
            (static_cast<int64_t>(p.image * g.out_height + i) * g.out_width + j) * g.channels +
            p.channel;
        total += Wide(gradient[at]) / static_cast<W>(Window<Index>(g, i, j).Divisor(g));
      }
    }
    result[o] = Narrow<T>(total);
  }
}

template <typename Index>
Geometry<Index> GeometryOf(const Pool2dAttributes& a, const TensorRef& input,
                           const TensorRef& output, int64_t count) {
  auto index = [](int64_t value) { return static_cast<Index>(value); };
  return {index(count),           index(input.dims[3]),   index(input.dims[1]),
          index(input.dims[2]),   index(output.dims[1]),  index(output.dims[2]),
          index(a.kernel_height), index(a.kernel_width),  index(a.stride_height),
          index(a.stride_width),  index(a.pad_top),       index(a.pad_left),
          a.count_include_pad,    a.relu_grad};
}

// run(geometry) with the narrowest index type that is wide enough.
template <typename Run>
void WithGeometry(const KernelCall& call, const TensorRef& input, const TensorRef& output, Run run) {
  const auto& a = call.attrs<Pool2dAttributes>();
  const int64_t count = call.outputs[0].NumElements();
  if (count == 0) return;
  constexpr int64_t kMost = int64_t{1} << 30;
  if (input.NumElements() < kMost && output.NumElements() < kMost &&
      a.kernel_height * a.kernel_width < kMost && a.stride_height < kMost && a.stride_width < kMost) {
    run(GeometryOf<int32_t>(a, input, output, count));
  } else {
    run(GeometryOf<int64_t>(a, input, output, count));
  }
}

template <typename Index, typename... Parameters, typename... Arguments>
void LaunchFor(const KernelCall& call, const Geometry<Index>& g,
               void (*kernel)(Geometry<Index>, Parameters...), const Arguments&... arguments) {
  Launch(kernel, BlocksFor(g.count, kBlockThreads), kBlockThreads, 0, StreamOf(call), g,
         arguments...);
}

template <typename T, bool kMax>
void RunPool(const KernelCall& call) {
  WithGeometry(call, call.inputs[0], call.outputs[0], [&]<typename Index>(Geometry<Index> g) {
    LaunchFor(call, g, PoolKernel<T, Index, kMax>, call.inputs[0].as<T>(), call.outputs[0].as<T>());
  });
}

template <typename T>
void MaxPool2d(const KernelCall& call) {
  RunPool<T, true>(call);
}
template <typename T>
void AveragePool2d(const KernelCall& call) {
  RunPool<T, false>(call);
}

template <typename T>
void MaxPool2dGrad(const KernelCall& call) {
  WithGeometry(call, call.inputs[0], call.inputs[2], [&]<typename Index>(Geometry<Index> g) {
    LaunchFor(call, g, MaxPoolGradKernel<T, Index>, call.inputs[0].as<T>(), call.inputs[1].as<T>(),
              call.inputs[2].as<T>(), call.outputs[0].as<T>());
  });
}

template <typename T>
void AveragePool2dGrad(const KernelCall& call) {
  WithGeometry(call, call.outputs[0], call.inputs[0], [&]<typename Index>(Geometry<Index> g) {
    LaunchFor(call, g, AveragePoolGradKernel<T, Index>, call.inputs[0].as<T>(),
              call.outputs[0].as<T>());
  });
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kMaxPool2d, MaxPool2d),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kMaxPool2dGrad, MaxPool2dGrad),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kAveragePool2d, AveragePool2d),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kAveragePool2dGrad, AveragePool2dGrad),
});

}  // namespace
}  // namespace tidepool::cuda
