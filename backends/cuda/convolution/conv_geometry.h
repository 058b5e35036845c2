// Sizes of a convolution of dense operands, for device code.
#ifndef TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_CONV_GEOMETRY_H_
#define TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_CONV_GEOMETRY_H_

#include <cstdint>

#include "cuda_runtime.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cuda {

// Images [batch, height, width, channels], filters [filters, kernel_height, kernel_width,
// group_channels], results [batch, out_height, out_width, filters]. Sizes along one axis fit int.
struct ConvGeometry {
  int64_t batch;
  int height, width, channels, out_height, out_width, filters;
  int kernel_height, kernel_width;
  int groups, group_channels, group_filters;
  int stride_height, stride_width, pad_top, pad_left, dilation_height, dilation_width;

  __host__ __device__ int64_t out_pixels() const {
    return batch * out_height * static_cast<int64_t>(out_width);
  }
  __host__ __device__ int64_t pixels() const {
    return batch * height * static_cast<int64_t>(width);
  }
  // Elements of a filter.
  __host__ __device__ int64_t taps() const {
    return static_cast<int64_t>(kernel_height) * kernel_width * group_channels;
  }
  __device__ __forceinline__ bool Inside(int row, int column) const {
    return static_cast<unsigned>(row) < static_cast<unsigned>(height) &&
           static_cast<unsigned>(column) < static_cast<unsigned>(width);
  }
};

inline ConvGeometry GeometryOf(const Conv2dAttributes& a, const TensorRef& input,
                               const TensorRef& filter, const TensorRef& output) {
  auto narrow = [](int64_t value) { return static_cast<int>(value); };
  ConvGeometry g;
  g.batch = input.dims[0];
  g.height = narrow(input.dims[1]), g.width = narrow(input.dims[2]);
  g.channels = narrow(input.dims[3]);
  g.out_height = narrow(output.dims[1]), g.out_width = narrow(output.dims[2]);
  g.filters = narrow(filter.dims[0]);
  g.kernel_height = narrow(filter.dims[1]), g.kernel_width = narrow(filter.dims[2]);
  g.groups = narrow(a.groups);
  g.group_channels = narrow(filter.dims[3]);
  g.group_filters = narrow(filter.dims[0] / a.groups);
  g.stride_height = narrow(a.stride_height), g.stride_width = narrow(a.stride_width);
  g.pad_top = narrow(a.pad_top), g.pad_left = narrow(a.pad_left);
  g.dilation_height = narrow(a.dilation_height), g.dilation_width = narrow(a.dilation_width);
  return g;
}

// Image, row and column of a pixel.
struct Pixel {
  int64_t image;
  int row, column;
};
__device__ __forceinline__ Pixel FindPixel(int64_t index, int height, int width) {
  const int64_t line = Quotient(index, width);
  Pixel p;
  p.column = static_cast<int>(index - line * width);
  p.image = Quotient(line, height);
  p.row = static_cast<int>(line - p.image * height);
  return p;
}

// Row, column and channel (or filter) of a tap.
struct Tap {
  int row, column, channel;
};
__device__ __forceinline__ Tap FindTap(int index, int kernel_width, int channels) {
  const int place = index / channels;
  Tap t;
  t.channel = index - place * channels;
  t.row = place / kernel_width;
  t.column = place - t.row * kernel_width;
  return t;
}

// The output position whose window puts a tap on `shifted` = position + pad - tap * dilation; -1 when
// there is none.
__device__ __forceinline__ int OutputFor(int shifted, int stride, int out_size) {
  if (shifted < 0) return -1;
  const int out = stride == 1 ? shifted : shifted / stride;
  return out * stride == shifted && out < out_size ? out : -1;
}

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_CONV_GEOMETRY_H_
