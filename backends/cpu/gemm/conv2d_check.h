// The argument check shared by the functions of conv2d.h.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_CONV2D_CHECK_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_CONV2D_CHECK_H_

namespace tidepool::cpu {

struct Conv2dProblem;

// Throws an invalid argument error naming `function` unless the problem is possible and, when it
// has any work, the three arrays are not null.
void CheckConv2d(const char* function, const Conv2dProblem& problem, const void* first,
                 const void* second, const void* third);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_CONV2D_CHECK_H_
