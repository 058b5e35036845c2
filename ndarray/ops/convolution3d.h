// Convolution of three dimensions and the transposed one, with their gradients: as convolution.h and
// convolution_transpose.h, of volumes [batch, depth, height, width, channels] and filters [filters, kernel depth, height,
// width, channels / groups]. f32, f64, f16, bf16.
//
// Errors: kInvalidArgument naming operand, shapes and the rule that is broken.
#ifndef TIDEPOOL_NDARRAY_OPS_CONVOLUTION3D_H_
#define TIDEPOOL_NDARRAY_OPS_CONVOLUTION3D_H_

#include <array>

#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

Shape Conv3dOutputShape(const Shape& input, const Shape& filter,
                        const Conv3dAttributes& attributes);
// `bias` [filters] may be null. Results are in the current place.
NDArray Conv3d(const NDArray& input, const NDArray& filter, const NDArray* bias = nullptr,
               const Conv3dAttributes& attributes = {});
NDArray Conv3dGradInput(const NDArray& output_gradient, const NDArray& filter,
                        const Shape& input_shape, const Conv3dAttributes& attributes = {});
// Into (or added to) `filter_gradient`.
void Conv3dGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                          NDArray& filter_gradient, const Conv3dAttributes& attributes = {});

// By axis, each smaller than the stride.
using OutputPadding3d = std::array<int64_t, 3>;
// The filter is that of the convolution it transposes; `bias` [channels] may be null.
NDArray Conv3dTranspose(const NDArray& input, const NDArray& filter, const NDArray* bias = nullptr,
                        const Conv3dAttributes& attributes = {},
                        const OutputPadding3d& padding = {});
NDArray Conv3dTransposeGradInput(const NDArray& output_gradient, const NDArray& filter,
                                 const Conv3dAttributes& attributes = {});
void Conv3dTransposeGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                                   NDArray& filter_gradient,
                                   const Conv3dAttributes& attributes = {});

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_CONVOLUTION3D_H_
