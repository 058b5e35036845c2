// Gradients of pooling of dense NHWC images. Where windows lie apart a thread takes a window and the pixels up
// to the next one: what is read is read once. Where they overlap gradients are gathered, window after window, so
// that sums have the order of the windows; which pixel of a window was the largest is found first and kept as a
// byte.
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/pooling/pool_geometry.h"

namespace tidepool::cuda {
namespace {

// Of windows with fewer pixels the largest one's number is a byte.
constexpr int kNoTap = 255;

// The largest pixels of a window for each channel of an access: the first of equal ones, or the first NaN.
template <typename T, typename Index, int kWidth>
struct LargestPixels {
  Compute<T> value[kWidth];
  Index tap[kWidth];  // row by row, counted in all of the window

  __device__ __forceinline__ LargestPixels(const Geometry<Index>& g, const Place<Index>& p,
                                           const Window<Index>& w, const T* input, bool aligned) {
#pragma unroll
    for (int u = 0; u < kWidth; ++u) {
      value[u] = 0;
      tap[u] = -1;
    }
    ForEachPixel<kWidth>(
        g, p, w, input, aligned, [&](const Vector<T, kWidth>& x, Index row, Index column) {
          const Index here = (row - w.top) * g.kernel_width + column - w.left;
#pragma unroll
          for (int u = 0; u < kWidth; ++u) {
            const Compute<T> other = Wide(x.lane[u]);
            if (tap[u] < 0 || other > value[u] || (IsNaN(other) && !IsNaN(value[u]))) {
              value[u] = other;
              tap[u] = here;
            }
          }
        });
    // The gradient of a ReLU whose output the image is.
    if (g.relu_grad) {
#pragma unroll
      for (int u = 0; u < kWidth; ++u) {
        if (!(value[u] > 0)) tap[u] = -1;
      }
    }
  }
};

// Windows that lie apart: each with the pixels to the next one, which get zeros.
template <typename T, typename Index, int kWidth, bool kMax>
__global__ void __launch_bounds__(kBlockThreads)
    ApartGradKernel(Geometry<Index> g, const T* input, const T* gradient, T* result) {
  using W = Compute<T>;
  const bool aligned =
      kWidth > 1 && (!kMax || IsAligned(input)) && IsAligned(gradient) && IsAligned(result);
  for (int64_t o = GlobalThread(); o < g.outputs(); o += GlobalThreads()) {
    const auto p = FindPlace(static_cast<Index>(o), g.out_height, g.out_width, g.channels);
    const Window<Index> w(g, p.row, p.column);
    Vector<T, kWidth> slope = LoadAccess<kWidth>(gradient + o * kWidth, aligned);
    const Vector<T, kWidth> zero = {};
    // Sums of one term, as the general kernels make them.
    const W divisor = kMax ? W{1} : static_cast<W>(w.Divisor(g));
#pragma unroll
    for (int u = 0; u < kWidth; ++u) {
      slope.lane[u] =
          Narrow<T>(W{0} + (kMax ? Wide(slope.lane[u]) : Wide(slope.lane[u]) / divisor));
    }
    Index tap[kWidth] = {};
    if constexpr (kMax) {
      const LargestPixels<T, Index, kWidth> largest(g, p, w, input, aligned);
#pragma unroll
      for (int u = 0; u < kWidth; ++u) tap[u] = largest.tap[u];
    }
    const Index row_end = p.row + 1 < g.out_height ? w.top + g.stride_height : g.height;
    const Index column_end = p.column + 1 < g.out_width ? w.left + g.stride_width : g.width;
    for (Index row = w.row; row < row_end; ++row) {
      for (Index column = w.column; column < column_end; ++column) {
        const bool inside = row < w.row_end && column < w.column_end;
        const Index here = (row - w.top) * g.kernel_width + column - w.left;
        Vector<T, kWidth> out;
#pragma unroll
        for (int u = 0; u < kWidth; ++u) {
          out.lane[u] = inside && (!kMax || tap[u] == here) ? slope.lane[u] : zero.lane[u];
        }
        StoreAccess(result + InputAt(g, p.image, row, column, p.channel) * kWidth, aligned, out);
      }
    }
  }
}

template <typename T, typename Index, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    FindTapsKernel(Geometry<Index> g, const T* input, uint8_t* taps) {
  const bool aligned = kWidth > 1 && IsAligned(input);
  for (int64_t o = GlobalThread(); o < g.outputs(); o += GlobalThreads()) {
    const auto p = FindPlace(static_cast<Index>(o), g.out_height, g.out_width, g.channels);
    const LargestPixels<T, Index, kWidth> largest(g, p, Window<Index>(g, p.row, p.column), input,
                                                  aligned);
    Vector<uint8_t, kWidth> out;
#pragma unroll
    for (int u = 0; u < kWidth; ++u) {
      out.lane[u] = static_cast<uint8_t>(largest.tap[u] < 0 ? kNoTap : largest.tap[u]);
    }
    StoreAccess(taps + o * kWidth, true, out);  // scratch is aligned
  }
}

// With `taps` of the maximum, null: of the average.
template <typename T, typename Index, int kWidth, bool kMax>
__global__ void __launch_bounds__(kBlockThreads)
    GatherGradKernel(Geometry<Index> g, const uint8_t* taps, const T* gradient, T* result) {
  using W = Compute<T>;
  const bool aligned = kWidth > 1 && IsAligned(gradient) && IsAligned(result);
  for (int64_t o = GlobalThread(); o < g.inputs(); o += GlobalThreads()) {
    const auto p = FindPlace(static_cast<Index>(o), g.height, g.width, g.channels);
    const WindowRange<Index> rows(p.row, g.kernel_height, g.stride_height, g.pad_top, g.out_height);
    const WindowRange<Index> columns(p.column, g.kernel_width, g.stride_width, g.pad_left,
                                     g.out_width);
    W total[kWidth] = {};
    auto add = [&](const Vector<T, kWidth>& slope, const Vector<uint8_t, kWidth>& tap, Index i,
                   Index j) {
      const Window<Index> w(g, i, j);
      const Index here = (p.row - w.top) * g.kernel_width + p.column - w.left;
      const W divisor = kMax ? W{1} : static_cast<W>(w.Divisor(g));
#pragma unroll
      for (int u = 0; u < kWidth; ++u) {
        if constexpr (kMax) {
          if (tap.lane[u] == here) total[u] += Wide(slope.lane[u]);
        } else {
          total[u] += Wide(slope.lane[u]) / divisor;
        }
      }
    };
    for (Index i = rows.first; i < rows.end; ++i) {
      for (Index j = columns.first; j < columns.end; j += 2) {  // two are loaded at a time
        const bool two = j + 1 < columns.end;
        const int64_t first = OutputAt(g, p.image, i, j, p.channel) * kWidth;
        const int64_t second = two ? first + static_cast<int64_t>(g.channels) * kWidth : first;
        Vector<uint8_t, kWidth> tap = {}, other_tap = {};
        if constexpr (kMax) {
          tap = LoadAccess<kWidth>(taps + first, true);
          other_tap = LoadAccess<kWidth>(taps + second, true);
        }
        const auto slope = LoadAccess<kWidth>(gradient + first, aligned);
        const auto other_slope = LoadAccess<kWidth>(gradient + second, aligned);
        add(slope, tap, i, j);
        if (two) add(other_slope, other_tap, i, static_cast<Index>(j + 1));
      }
    }
    Vector<T, kWidth> out;
#pragma unroll
    for (int u = 0; u < kWidth; ++u) out.lane[u] = Narrow<T>(total[u]);
    StoreAccess(result + o * kWidth, aligned, out);
  }
}

// Windows of so many pixels that their numbers are no bytes: each window is looked through for each of its
// pixels.
template <typename T, typename Index>
__global__ void __launch_bounds__(kBlockThreads)
    LargeWindowGradKernel(Geometry<Index> g, const T* input, const T* gradient, T* result) {
  for (int64_t o = GlobalThread(); o < g.inputs(); o += GlobalThreads()) {
    const auto p = FindPlace(static_cast<Index>(o), g.height, g.width, g.channels);
    const WindowRange<Index> rows(p.row, g.kernel_height, g.stride_height, g.pad_top, g.out_height);
    const WindowRange<Index> columns(p.column, g.kernel_width, g.stride_width, g.pad_left,
                                     g.out_width);
    Compute<T> total = 0;
    for (Index i = rows.first; i < rows.end; ++i) {
      for (Index j = columns.first; j < columns.end; ++j) {
        const Window<Index> w(g, i, j);
        const LargestPixels<T, Index, 1> largest(g, p, w, input, false);
        if (largest.tap[0] == (p.row - w.top) * g.kernel_width + p.column - w.left) {
          total += Wide(gradient[OutputAt(g, p.image, i, j, p.channel)]);
        }
      }
    }
    result[o] = Narrow<T>(total);
  }
}

template <typename Index>
bool KeepsTaps(const Geometry<Index>& g) {
  return !g.IsApart() && g.taps() <= kNoTap;
}

template <typename T>
size_t MaxPool2dGradScratch(const KernelCall& call) {
  size_t bytes = 0;
  WithGeometry<T>(call, call.inputs[0], call.inputs[2], [&](const auto& g, auto width) {
    if (KeepsTaps(g)) bytes = static_cast<size_t>(g.outputs() * width());
  });
  return bytes;
}

template <typename T>
void MaxPool2dGrad(const KernelCall& call) {
  const T* const input = call.inputs[0].as<T>();
  const T* const gradient = call.inputs[2].as<T>();
  T* const result = call.outputs[0].as<T>();
  WithGeometry<T>(call, call.inputs[0], call.inputs[2],
                  [&]<typename Index>(const Geometry<Index>& g, auto width) {
                    if (g.IsApart()) {
                      LaunchFor(call, g.outputs(), g, ApartGradKernel<T, Index, width(), true>,
                                input, gradient, result);
                    } else if (KeepsTaps(g)) {
                      auto* const taps = static_cast<uint8_t*>(call.scratch);
                      LaunchFor(call, g.outputs(), g, FindTapsKernel<T, Index, width()>, input,
                                taps);
                      LaunchFor(call, g.inputs(), g, GatherGradKernel<T, Index, width(), true>,
                                taps, gradient, result);
                    } else {
                      Geometry<int64_t> wide{g.images,
                                             g.channels * width(),
                                             g.height,
                                             g.width,
                                             g.out_height,
                                             g.out_width,
                                             g.kernel_height,
                                             g.kernel_width,
                                             g.stride_height,
                                             g.stride_width,
                                             g.pad_top,
                                             g.pad_left,
                                             g.count_include_pad,
                                             g.relu_grad};
                      LaunchFor(call, wide.inputs(), wide, LargeWindowGradKernel<T, int64_t>, input,
                                gradient, result);
                    }
                  });
}

template <typename T>
void AveragePool2dGrad(const KernelCall& call) {
  const T* const gradient = call.inputs[0].as<T>();
  T* const result = call.outputs[0].as<T>();
  WithGeometry<T>(call, call.outputs[0], call.inputs[0],
                  [&]<typename Index>(const Geometry<Index>& g, auto width) {
                    if (g.IsApart()) {
                      LaunchFor(call, g.outputs(), g, ApartGradKernel<T, Index, width(), false>,
                                nullptr, gradient, result);
                    } else {
                      LaunchFor(call, g.inputs(), g, GatherGradKernel<T, Index, width(), false>,
                                nullptr, gradient, result);
                    }
                  });
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_SCRATCH_KERNELS(OpCode::kMaxPool2dGrad, MaxPool2dGrad, MaxPool2dGradScratch),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kAveragePool2dGrad, AveragePool2dGrad),
});

}  // namespace
}  // namespace tidepool::cuda
