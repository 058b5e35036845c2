// Resizing of images [batch, height, width, channels], f32, f64, f16 and bf16, with its gradient: nearest elements,
// (bi)linear and (bi)cubic interpolation (ndarray/kernel/attributes_images.h). No filter against aliasing: who makes images
// much smaller averages them first (AveragePool2d). Results are in the current place. One dimension: height 1.
//
// Errors: kInvalidArgument naming operand, shapes and the rule that is broken. Cost: one pass down the images and one along
// them; scratch: a line of the image for each thread, and the taps of the two axes.
#ifndef TIDEPOOL_NDARRAY_OPS_RESIZE_H_
#define TIDEPOOL_NDARRAY_OPS_RESIZE_H_

#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

NDArray Resize2d(const NDArray& input, int64_t height, int64_t width,
                 const ResizeAttributes& attributes = {});
// The gradient with respect to an input of that height and width.
NDArray Resize2dGrad(const NDArray& output_gradient, int64_t height, int64_t width,
                     const ResizeAttributes& attributes = {});

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_RESIZE_H_
