// Transposed 2-D convolution ("deconvolution"), the gradient of a convolution with respect to its
// input used forwards, and its own gradients, which are the convolution's other two operators.
//
// input [batch, height, width, filters], filter [filters, kernel height, kernel width,
// channels / groups] (that of the convolution it transposes), output [batch, out height, out width,
// channels] with
//   out = (in - 1) * stride - pads + dilation * (kernel - 1) + 1 + output padding,
// where 0 <= output padding < stride picks one of the sizes that the convolution maps to `in`.
// attributes.relu is applied to the output. Results are in the current place.
//
// Errors: kInvalidArgument naming operand, shapes and the rule that is broken.
#ifndef TIDEPOOL_NDARRAY_OPS_CONVOLUTION_TRANSPOSE_H_
#define TIDEPOOL_NDARRAY_OPS_CONVOLUTION_TRANSPOSE_H_

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

struct OutputPadding {
  int64_t height = 0, width = 0;
};

Shape Conv2dTransposeOutputShape(const Shape& input, const Shape& filter,
                                 const Conv2dAttributes& attributes, OutputPadding padding = {});
// `bias` [channels] may be null.
NDArray Conv2dTranspose(const NDArray& input, const NDArray& filter, const NDArray* bias,
                        const Conv2dAttributes& attributes, OutputPadding padding = {});
NDArray Conv2dTransposeGradInput(const NDArray& output_gradient, const NDArray& filter,
                                 const Conv2dAttributes& attributes);
// Into (or added to) `filter_gradient`.
void Conv2dTransposeGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                                   NDArray& filter_gradient, const Conv2dAttributes& attributes);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_CONVOLUTION_TRANSPOSE_H_
