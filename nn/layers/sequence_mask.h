// What layers do with the mask of sequences (LayerContext::mask).
//
// A rule for all of them: outputs at steps that a sequence has, losses and gradients do not depend
// on what stands behind its end, not even where that is NaN, and what stands there has a gradient of
// zero. So a layer reads zeros there (WithoutMasked) where its steps see each other, where its
// parameters see all steps, and where its gradient is that of its output times a function of what it
// reads: 0 * NaN is NaN. What only moves elements or adds to them needs nothing.
#ifndef TIDEPOOL_NN_LAYERS_SEQUENCE_MASK_H_
#define TIDEPOOL_NN_LAYERS_SEQUENCE_MASK_H_

#include <cstddef>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// Whether `mask` [batch, length] is of the steps of `x` [batch, length, ...].
bool IsMaskOf(const NDArray& mask, const NDArray& x);
// The mask of input `i` of a layer of several, undefined where it has none. Where a caller tells of
// one mask alone (LayerContext::masks is empty), that is of the first input.
NDArray MaskOfInput(const LayerContext& context, size_t i);
// As bool [batch, length, 1, ...] of `rank` axes, in the current place: a view where the mask is
// bool.
NDArray MaskOfRank(const NDArray& mask, int rank);
// x, with zeros where the mask, if it is one of x's steps, has none; integers likewise.
NDArray WithoutMasked(const NDArray& mask, const NDArray& x);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_SEQUENCE_MASK_H_
