// Pooling of images [batch, height, width, channels], with gradients. f32, f64, f16, bf16. Results
// are in the current place.
//
// Windows that do not fit the padded image are left out: out = (in + pads - kernel) / stride + 1,
// rounded down. Each padding is smaller than the kernel, so every window has an element of the image.
//
// Errors: kInvalidArgument naming operand, shapes and the rule that is broken. Cost: one pass over
// the image for each element of a window; of 2x2 windows side by side, one in all.
#ifndef TIDEPOOL_NDARRAY_OPS_POOLING_H_
#define TIDEPOOL_NDARRAY_OPS_POOLING_H_

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// [batch, out height, out width, channels]. Throws kInvalidArgument as the operators do.
Shape MaxPool2dOutputShape(const Shape& input, const Pool2dAttributes& attributes);
Shape AveragePool2dOutputShape(const Shape& input, const Pool2dAttributes& attributes);

// The largest element of each window; NaN if it has one. Padding is never the largest.
NDArray MaxPool2d(const NDArray& input, const Pool2dAttributes& attributes);
// The gradient goes to the first largest element of each window; windows may overlap. With
// attributes.relu_grad elements that are not positive get none.
NDArray MaxPool2dGrad(const NDArray& input, const NDArray& output, const NDArray& output_gradient,
                      const Pool2dAttributes& attributes);

// The mean of each window; padding counts as zeros with attributes.count_include_pad, else not.
NDArray AveragePool2d(const NDArray& input, const Pool2dAttributes& attributes);
NDArray AveragePool2dGrad(const NDArray& output_gradient, const Shape& input_shape,
                          const Pool2dAttributes& attributes);

// Over whole images: [batch, channels].
NDArray GlobalMaxPool2d(const NDArray& input);
NDArray GlobalMaxPool2dGrad(const NDArray& input, const NDArray& output,
                            const NDArray& output_gradient);
NDArray GlobalAveragePool2d(const NDArray& input);
NDArray GlobalAveragePool2dGrad(const NDArray& output_gradient, const Shape& input_shape);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_POOLING_H_
