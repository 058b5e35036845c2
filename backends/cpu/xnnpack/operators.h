// XNNPACK's operators that we run, through one interface for both generations of its own: that of
// 2022 (create, setup, run; Debian 12) and that of 2024 (create with caches, reshape, setup, run;
// Debian 13). Which one is there is found from the functions that <xnnpack.h> declares; a third
// interface does not compile. All work on the calling thread.
#ifndef TIDEPOOL_BACKENDS_CPU_XNNPACK_OPERATORS_H_
#define TIDEPOOL_BACKENDS_CPU_XNNPACK_OPERATORS_H_

#include <xnnpack.h>

#include <cstddef>
#include <cstdint>

#include "tidepool/backends/cpu/gemm/conv2d.h"

namespace tidepool::cpu {

// "2022" or "2024".
const char* XnnpackInterface();

// z[rows, outputs] = max(lowest, x[rows, inputs] * weights + bias). weights: [outputs, inputs]
// unless `flags` say otherwise; bias: [outputs] or null. Rows of z are `stride` apart.
xnn_status CreateFullyConnected(size_t inputs, size_t outputs, size_t stride, const float* weights,
                                const float* bias, float lowest, uint32_t flags,
                                xnn_operator_t* op);
xnn_status RunFullyConnected(xnn_operator_t op, size_t rows, const float* x, float* z);

// Some of the channels of a convolution: groups of `in` to `out` channels each, whose pixels lie among all of the problem's.
struct ConvolutionPart {
  int64_t groups, in, out;
};
// As Conv2dForward; filter [groups * out, height, width, in], bias [groups * out] or null. Results
// below `lowest` become it. Of `p`, batch and input sizes are those of the call.
xnn_status CreateConvolution(const Conv2dProblem& p, const ConvolutionPart& part,
                             const float* filter, const float* bias, float lowest,
                             xnn_operator_t* op);
// Bytes a run works in, besides what the operator keeps; none with the 2022 interface.
bool ConvolutionsTakeWorkspace();
xnn_status ConvolutionWorkspace(xnn_operator_t op, const Conv2dProblem& p, size_t* bytes);
// x and z: the first channel of the part in the first pixel. `workspace`: as many bytes as ConvolutionWorkspace says, aligned to 64; null for none.
xnn_status RunConvolution(xnn_operator_t op, const Conv2dProblem& p, const float* x, float* z,
                          void* workspace);

// Along rows of `n`.
xnn_status CreateSoftmax(size_t n, xnn_operator_t* op);
xnn_status RunSoftmaxRows(xnn_operator_t op, size_t rows, size_t n, const float* x, float* z);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_XNNPACK_OPERATORS_H_
