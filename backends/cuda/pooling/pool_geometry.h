// Images, windows and places of pooling, for .cu files. Places are counted in accesses: what a thread moves at a
// time of neighbouring channels, 16 bytes or an element.
#ifndef TIDEPOOL_BACKENDS_CUDA_POOLING_POOL_GEOMETRY_H_
#define TIDEPOOL_BACKENDS_CUDA_POOLING_POOL_GEOMETRY_H_

#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/common/access.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/slots.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/attributes.h"

namespace tidepool::cuda {

// Of an image and its windows; all fit 64 bits, most fit 32, which divide faster.
template <typename Index>
struct Geometry {
  Index images;
  Index channels;  // accesses of a pixel
  Index height, width, out_height, out_width;
  Index kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left;
  bool count_include_pad, relu_grad;

  __host__ __device__ int64_t inputs() const {
    return static_cast<int64_t>(images) * height * width * channels;
  }
  __host__ __device__ int64_t outputs() const {
    return static_cast<int64_t>(images) * out_height * out_width * channels;
  }
  // No pixel is in two windows, and there are windows.
  bool IsApart() const {
    return outputs() > 0 && stride_height >= kernel_height && stride_width >= kernel_width;
  }
  int64_t taps() const { return static_cast<int64_t>(kernel_height) * kernel_width; }
};

// Of an access of the image, or of the result.
template <typename Index>
struct Place {
  Index image, row, column, channel;
};
template <typename Index>
__device__ __forceinline__ Place<Index> FindPlace(Index i, Index height, Index width,
                                                  Index channels) {
  Place<Index> p;
  const Index pixel = i / channels;
  p.channel = i - pixel * channels;
  const Index row = pixel / width;
  p.column = pixel - row * width;
  p.image = row / height;
  p.row = row - p.image * height;
  return p;
}
template <typename Index>
__device__ __forceinline__ int64_t InputAt(const Geometry<Index>& g, Index image, Index row,
                                           Index column, Index channel) {
  return (static_cast<int64_t>(image * g.height + row) * g.width + column) * g.channels + channel;
}
template <typename Index>
__device__ __forceinline__ int64_t OutputAt(const Geometry<Index>& g, Index image, Index row,
                                            Index column, Index channel) {
  return (static_cast<int64_t>(image * g.out_height + row) * g.out_width + column) * g.channels +
         channel;
}

// The part of window (i, j) that lies in the image.
template <typename Index>
struct Window {
  Index top, left;  // also of padding
  Index row, row_end, column, column_end;
  __device__ __forceinline__ Window(const Geometry<Index>& g, Index i, Index j)
      : top(i * g.stride_height - g.pad_top), left(j * g.stride_width - g.pad_left) {
    row_end = min(top + g.kernel_height, g.height);
    column_end = min(left + g.kernel_width, g.width);
    row = max(top, Index{0});
    column = max(left, Index{0});
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

// visit(access, row, column) for the window's pixels, row by row. Up to four of a row are loaded before the
// first is visited.
template <int kWidth, typename T, typename Index, typename Visit>
__device__ __forceinline__ void ForEachPixel(const Geometry<Index>& g, const Place<Index>& p,
                                             const Window<Index>& w, const T* input, bool aligned,
                                             Visit visit) {
  constexpr int kAtOnce = 4;
  for (Index row = w.row; row < w.row_end; ++row) {
    const T* const x = input + InputAt(g, p.image, row, Index{0}, p.channel) * kWidth;
    for (Index column = w.column; column < w.column_end; column += kAtOnce) {
      Vector<T, kWidth> access[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (column + k < w.column_end) {
          access[k] = LoadAccess<kWidth>(x + static_cast<int64_t>(column + k) * g.channels * kWidth,
                                         aligned);
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (column + k < w.column_end) visit(access[k], row, static_cast<Index>(column + k));
      }
    }
  }
}

// run(geometry, std::integral_constant<int, elements of an access>) with the narrowest index type that is
// wide enough, and 16 bytes where the channels allow them.
template <typename T, typename Run>
void WithGeometry(const KernelCall& call, const TensorRef& input, const TensorRef& output,
                  Run run) {
  const auto& a = call.attrs<Pool2dAttributes>();
  if (call.outputs[0].NumElements() == 0) return;
  auto geometry = [&]<typename Index>(Index width) {
    auto index = [](int64_t value) { return static_cast<Index>(value); };
    return Geometry<Index>{index(input.dims[0]),   index(input.dims[3] / width),
                           index(input.dims[1]),   index(input.dims[2]),
                           index(output.dims[1]),  index(output.dims[2]),
                           index(a.kernel_height), index(a.kernel_width),
                           index(a.stride_height), index(a.stride_width),
                           index(a.pad_top),       index(a.pad_left),
                           a.count_include_pad,    a.relu_grad};
  };
  constexpr int64_t kMost = int64_t{1} << 30;
  constexpr int kWidth = kAccessWidth<T>;
  if (input.NumElements() >= kMost || output.NumElements() >= kMost ||
      a.kernel_height * a.kernel_width >= kMost || a.stride_height >= kMost ||
      a.stride_width >= kMost) {
    run(geometry(int64_t{1}), std::integral_constant<int, 1>());
  } else if (input.dims[3] % kWidth == 0) {
    run(geometry(int32_t{kWidth}), std::integral_constant<int, kWidth>());
  } else {
    run(geometry(int32_t{1}), std::integral_constant<int, 1>());
  }
}

// A thread for each of `count` accesses.
template <typename Index, typename... Parameters, typename... Arguments>
void LaunchFor(const KernelCall& call, int64_t count, const Geometry<Index>& g,
               void (*kernel)(Geometry<Index>, Parameters...), const Arguments&... arguments) {
  Launch(kernel, BlocksFor(count, kBlockThreads, 65536), kBlockThreads, 0, StreamOf(call), g,
         arguments...);
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_POOLING_POOL_GEOMETRY_H_
