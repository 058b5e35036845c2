// 2-D convolution and its two gradients, single precision, as matrix products over the image where
// it lies: no im2col copy of the whole input, no state, no allocation.
//
// Layouts: x [batch, in_height, in_width, in_channels], y and dy [batch, out_height, out_width,
// out_channels], filter and dfilter [out_channels, kernel_height, kernel_width, in_channels]
// (XNNPACK's), bias [out_channels]; all dense. Convolution as in machine learning: the filter is
// not flipped.
//
// Scratch is the caller's, aligned to 64 bytes, of the size the *ScratchBytes function gives for
// the same problem and at least as many threads as the pool has (1 for no pool). Input and output
// must not overlap. Nothing outside the arrays is read or written. Results are the same bits for any
// pool: work is cut by the problem's shape, and where partial sums are added, in a fixed order.
// Each function throws tidepool::Error (invalid argument) before writing anything when the problem
// is impossible or an array is null. Concurrent calls need separate scratch and pools.
//
// Methods: indirect convolution (Dukhan 2019, "The Indirect Convolution Algorithm") with one
// pointer per pixel and one offset per filter row; the input gradient either as the convolution of
// dy with the flipped filter or, when that would mostly multiply padding or the stride is not 1, as
// one product per filter position added to dx in place; the filter gradient as a product whose
// inner dimension is the pixels, read from x in place.
// Padding is not multiplied where images have 16 channels and more: pixels at the border go without the taps beyond it. So
// whether an infinite or NaN element of the filter meets the zeros of the padding is not said.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_CONV2D_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_CONV2D_H_

#include <stddef.h>
#include <stdint.h>

namespace tidepool {
class ThreadPool;  // ndarray/kernel/threads.h
}

namespace tidepool::cpu {

// Padding is of zeros and may be larger than the kernel.
struct Conv2dProblem {
  int64_t batch, in_height, in_width, in_channels, out_channels;
  int64_t kernel_height, kernel_width;
  int64_t stride_height = 1, stride_width = 1;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  int64_t dilation_height = 1, dilation_width = 1;

  int64_t OutHeight() const;
  int64_t OutWidth() const;
};

// y = convolution(x, filter) + bias, then max(0, .). bias may be null.
// Scratch: the filter once, and per thread the padded rows of a few hundred output pixels.
size_t Conv2dForwardScratchBytes(const Conv2dProblem& problem, int threads);
void Conv2dForward(const Conv2dProblem& problem, const float* x, const float* filter,
                   const float* bias, bool relu, float* y, void* scratch, ThreadPool* pool);

// dx = gradient of the sum of y * dy with respect to x. Scratch as above.
size_t Conv2dGradInputScratchBytes(const Conv2dProblem& problem, int threads);
void Conv2dGradInput(const Conv2dProblem& problem, const float* dy, const float* filter, float* dx,
                     void* scratch, ThreadPool* pool);

// dfilter (+)= gradient of the sum of y * dy with respect to filter. The gradient of the bias, a sum over rows of dy, is not
// computed here. Slices of the batch, one behind the other with `accumulate`, give the bits of the whole
// (ndarray/kernel/example_sums.h). Scratch: of filters of up to 192 positions partial sums, some hundred KiB; per thread up to
// some hundred KiB and the padded rows.
size_t Conv2dGradFilterScratchBytes(const Conv2dProblem& problem, int threads);
void Conv2dGradFilter(const Conv2dProblem& problem, const float* x, const float* dy, float* dfilter,
                      bool accumulate, void* scratch, ThreadPool* pool);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_CONV2D_H_
