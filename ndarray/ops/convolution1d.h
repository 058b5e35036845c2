// Convolutions of one dimension and transposed ones, with their gradients: those of two on views of height 1, so that
// kernels, types and errors are those of convolution.h and convolution_transpose.h. Sequences are [batch, length,
// channels], filters [filters, kernel length, channels / groups], bias [filters] (transposed: [channels]).
#ifndef TIDEPOOL_NDARRAY_OPS_CONVOLUTION1D_H_
#define TIDEPOOL_NDARRAY_OPS_CONVOLUTION1D_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// As Conv2dAttributes.
struct Conv1dAttributes {
  int64_t stride = 1;
  int64_t pad_before = 0, pad_behind = 0;
  int64_t dilation = 1;
  bool relu = false;
  bool accumulate = false;
  bool filter_is_constant = false;
  int64_t groups = 1;
};

// `bias` may be null. Results are in the current place.
NDArray Conv1d(const NDArray& input, const NDArray& filter, const NDArray* bias = nullptr,
               const Conv1dAttributes& attributes = {});
NDArray Conv1dGradInput(const NDArray& output_gradient, const NDArray& filter,
                        const Shape& input_shape, const Conv1dAttributes& attributes = {});
// Into (or added to) `filter_gradient`, a dense array.
void Conv1dGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                          NDArray& filter_gradient, const Conv1dAttributes& attributes = {});

NDArray Conv1dTranspose(const NDArray& input, const NDArray& filter, const NDArray* bias = nullptr,
                        const Conv1dAttributes& attributes = {}, int64_t output_padding = 0);
NDArray Conv1dTransposeGradInput(const NDArray& output_gradient, const NDArray& filter,
                                 const Conv1dAttributes& attributes = {});
void Conv1dTransposeGradFilterInto(const NDArray& input, const NDArray& output_gradient,
                                   NDArray& filter_gradient,
                                   const Conv1dAttributes& attributes = {});

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_CONVOLUTION1D_H_
