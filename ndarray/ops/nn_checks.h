// Checks that the operators of neural networks share. Each throws kInvalidArgument with operator,
// operand, found, expected.
#ifndef TIDEPOOL_NDARRAY_OPS_NN_CHECKS_H_
#define TIDEPOOL_NDARRAY_OPS_NN_CHECKS_H_

#include <cstdint>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

void CheckFloating(const char* op, const char* operand, const NDArray& array);
void CheckRank4(const char* op, const char* operand, const Shape& shape);
void CheckLeastRank(const char* op, const char* operand, const NDArray& array, int least);
// Same type and shape as another array.
void CheckLike(const char* op, const char* operand, const NDArray& array, const NDArray& like);

// What kernels and libraries count in; beyond it their arithmetic would overflow.
inline constexpr int64_t kMostOfAWindow = INT32_MAX;
// That each of them is at most kMostOfAWindow, and what the window covers of an axis,
// dilation * (kernel - 1) + 1. `pads` are before and behind.
int64_t CoveredByWindow(const char* op, const char* axis, int64_t in, int64_t kernel,
                        int64_t stride, int64_t dilation, int64_t pads);
// The two together. Throws where one is negative.
int64_t SumOfPadding(const char* op, int64_t before, int64_t after);
// Places of a window along one axis: (in + pads - covered) / stride + 1, rounded down, where
// covered = dilation * (kernel - 1) + 1. Throws unless there is one at least.
int64_t WindowCount(const char* op, const char* axis, int64_t in, int64_t kernel, int64_t stride,
                    int64_t dilation, int64_t pads);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_NN_CHECKS_H_
