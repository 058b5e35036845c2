// 2-D convolution (cross-correlation, as every framework calls it), with its gradients. Pooling is
// in pooling.h, the transposed convolution in convolution_transpose.h. f32, f64, f16, bf16; images
// are [batch, height, width, channels], filters [filters, kernel height, kernel width,
// channels / groups], bias [filters]. attributes.groups divides channels and filters into equal runs
// that see each other only; groups == channels is the depthwise convolution, where filters
// c * multiplier to (c + 1) * multiplier - 1 are those of channel c.
//
// Errors: kInvalidArgument naming operand, shapes and the rule that is broken.
#ifndef TIDEPOOL_NDARRAY_OPS_CONVOLUTION_H_
#define TIDEPOOL_NDARRAY_OPS_CONVOLUTION_H_

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/pooling.h"

namespace tidepool {

// [batch, out height, out width, filters] with
// out = (in + pads - dilation * (kernel - 1) - 1) / stride + 1, rounded down, at least 1.
Shape Conv2dOutputShape(const Shape& input, const Shape& filter,
                        const Conv2dAttributes& attributes);
// `bias` may be null. The result is in the current place.
NDArray Conv2d(const NDArray& input, const NDArray& filter, const NDArray* bias,
               const Conv2dAttributes& attributes);
// The gradient with respect to an input of `input_shape`.
NDArray Conv2dGradInput(const NDArray& output_gradient, const NDArray& filter,
                        const Shape& input_shape, const Conv2dAttributes& attributes);
// The gradient with respect to the filter, into (or added to) `filter_gradient`.
void Conv2dGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                          NDArray& filter_gradient, const Conv2dAttributes& attributes);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_CONVOLUTION_H_
