// Depthwise convolution, each input channel with filters of its own, and its gradients; f32.
//
// `problem` is that of one channel: in_channels 1, out_channels the number of filters of each
// channel ("multiplier"). x [batch, height, width, channels], y [.., channels * multiplier], filter
// [channels * multiplier, kernel height, kernel width]; all dense. Filters c * multiplier + j belong
// to channel c. Scratch from the caller, aligned to 64 bytes. Results are the same bits for any
// number of threads. Nothing is thrown: shapes are the caller's.
#ifndef TIDEPOOL_BACKENDS_CPU_DEPTHWISE_H_
#define TIDEPOOL_BACKENDS_CPU_DEPTHWISE_H_

#include <cstddef>
#include <cstdint>

#include "tidepool/ndarray/kernel/threads.h"

namespace tidepool::cpu {

struct Conv2dProblem;

// Scratch: the filters once.
size_t DepthwiseForwardScratchBytes(const Conv2dProblem& problem, int64_t channels);
void DepthwiseForward(const Conv2dProblem& problem, int64_t channels, const float* x,
                      const float* filter, const float* bias, bool relu, float* y, void* scratch,
                      Threads threads);

// Scratch: the filters once; with a multiplier above 1 also dy once.
size_t DepthwiseGradInputScratchBytes(const Conv2dProblem& problem, int64_t channels);
void DepthwiseGradInput(const Conv2dProblem& problem, int64_t channels, const float* dy,
                        const float* filter, float* dx, void* scratch, Threads threads);

// Scratch: the filters up to 16 times; with a multiplier above 1 also dy once.
size_t DepthwiseGradFilterScratchBytes(const Conv2dProblem& problem, int64_t channels);
void DepthwiseGradFilter(const Conv2dProblem& problem, int64_t channels, const float* x,
                         const float* dy, float* dfilter, bool accumulate, void* scratch,
                         Threads threads);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_DEPTHWISE_H_
