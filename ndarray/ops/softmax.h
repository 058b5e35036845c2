// Softmax over the last axis and the cross-entropy of class labels.
#ifndef TIDEPOOL_NDARRAY_OPS_SOFTMAX_H_
#define TIDEPOOL_NDARRAY_OPS_SOFTMAX_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// x: f32, rank 1 or more. The largest element of a row is subtracted first.
NDArray Softmax(const NDArray& x);

struct CrossEntropy {
  NDArray loss;           // [batch], -log of the labelled class's probability
  NDArray probabilities;  // [batch, classes]
};
// logits [batch, classes], labels [batch] i64. Throws kInvalidArgument for a label out of range,
// naming it.
CrossEntropy SoftmaxCrossEntropy(const NDArray& logits, const NDArray& labels);
// scale * (probabilities - one_hot(labels)), the gradient of scale * sum of losses; may be written
// over the probabilities.
void SoftmaxCrossEntropyGradInto(const NDArray& probabilities, const NDArray& labels, double scale,
                                 NDArray& gradient);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_SOFTMAX_H_
