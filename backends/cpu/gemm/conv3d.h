// Convolution of volumes and its two gradients, as a sum over the planes of the filter of convolutions of two dimensions
// (conv2d.h, whose layouts, rules and methods hold here too). Volumes are [batch, planes, height, width, channels], filters
// [out_channels, kernel_planes, kernel_height, kernel_width, in_channels]. Planes of padding are not multiplied.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_CONV3D_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_CONV3D_H_

#include <stddef.h>
#include <stdint.h>

#include "tidepool/backends/cpu/gemm/conv2d.h"

namespace tidepool::cpu {

// An image is a volume of one plane.
struct Conv3dProblem {
  Conv2dProblem plane;
  int64_t in_planes = 1, kernel_planes = 1, stride_planes = 1;
  int64_t pad_front = 0, pad_behind = 0, dilation_planes = 1;

  int64_t OutPlanes() const;
};

size_t Conv3dForwardScratchBytes(const Conv3dProblem& problem, int threads);
void Conv3dForward(const Conv3dProblem& problem, const float* x, const float* filter,
                   const float* bias, bool relu, float* y, void* scratch, ThreadPool* pool);

size_t Conv3dGradInputScratchBytes(const Conv3dProblem& problem, int threads);
void Conv3dGradInput(const Conv3dProblem& problem, const float* dy, const float* filter, float* dx,
                     void* scratch, ThreadPool* pool);

size_t Conv3dGradFilterScratchBytes(const Conv3dProblem& problem, int threads);
void Conv3dGradFilter(const Conv3dProblem& problem, const float* x, const float* dy, float* dfilter,
                      bool accumulate, void* scratch, ThreadPool* pool);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_CONV3D_H_
