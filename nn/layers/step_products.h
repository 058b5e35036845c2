// Products of a sequence's steps, several at once where that gives the bits of each by itself.
#ifndef TIDEPOOL_NN_LAYERS_STEP_PRODUCTS_H_
#define TIDEPOOL_NN_LAYERS_STEP_PRODUCTS_H_

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

// z[i] = MatMulInto(x[i], y, z[i], attributes, bias) for each step i, to those bits: x [steps, batch, inner], z [steps, batch, columns],
// dense. One product of all rows where the kernel that is chosen adds up each of them as it does those of a step, which is found out
// once for each size, by products of random numbers; step by step elsewhere, and on devices.
void MultiplySteps(const NDArray& x, const NDArray& y, NDArray& z,
                   const MatMulAttributes& attributes, const NDArray* bias);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_STEP_PRODUCTS_H_
