// From a kernel call to the description of a convolution.
#ifndef TIDEPOOL_BACKENDS_CPU_CONV2D_CALL_H_
#define TIDEPOOL_BACKENDS_CPU_CONV2D_CALL_H_

#include "tidepool/backends/cpu/gemm/conv2d.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cpu {

inline Conv2dProblem MakeConv2dProblem(const TensorRef& input, const TensorRef& filter,
                                       const Conv2dAttributes& a) {
  Conv2dProblem p{};
  p.batch = input.dims[0];
  p.in_height = input.dims[1];
  p.in_width = input.dims[2];
  p.in_channels = input.dims[3];
  p.out_channels = filter.dims[0];
  p.kernel_height = filter.dims[1];
  p.kernel_width = filter.dims[2];
  p.stride_height = a.stride_height;
  p.stride_width = a.stride_width;
  p.pad_top = a.pad_top;
  p.pad_bottom = a.pad_bottom;
  p.pad_left = a.pad_left;
  p.pad_right = a.pad_right;
  p.dilation_height = a.dilation_height;
  p.dilation_width = a.dilation_width;
  return p;
}

inline Conv2dProblem ForwardProblem(const KernelCall& call) {
  return MakeConv2dProblem(call.inputs[0], call.inputs[1], call.attrs<Conv2dAttributes>());
}

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_CONV2D_CALL_H_
