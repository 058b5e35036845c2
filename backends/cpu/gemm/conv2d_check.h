// The argument check shared by the functions of conv2d.h and conv3d.h.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_CONV2D_CHECK_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_CONV2D_CHECK_H_

namespace tidepool::cpu {

struct Conv3dProblem;

// Throws an invalid argument error that says `what` cannot be computed unless the problem is possible and, when it
// has any work, the three arrays are not null.
void CheckConvolution(const char* what, const Conv3dProblem& problem, const void* first,
                      const void* second, const void* third);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_CONV2D_CHECK_H_
