// Losses, one number for each item of a batch, and their gradients. f32, f64, f16, bf16.
//
// Gradients are those of scale * (the sum of the items' losses): 1 / batch makes it the mean. The
// ...Into forms may write over the first operand and allocate nothing. Results are in the current
// place. Errors: kInvalidArgument naming operand, shape and type.
#ifndef TIDEPOOL_NDARRAY_OPS_LOSS_H_
#define TIDEPOOL_NDARRAY_OPS_LOSS_H_

#include <cstdint>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

struct CrossEntropy {
  NDArray loss;           // [batch], -log of the labelled class's probability
  NDArray probabilities;  // [batch, classes]
};
// Whether every label is known to be one of the classes. On a device the check reads them on the host.
// Of one that is not, unchecked, the loss is 0 and its row of the gradient that of no label.
enum class Labels : uint8_t { kUnchecked, kChecked };
// Throws kInvalidArgument for a label that is not in [0, classes), naming it.
void CheckSoftmaxLabels(const NDArray& labels, int64_t classes);
// logits [batch, classes], labels [batch] i64. Throws as CheckSoftmaxLabels.
CrossEntropy SoftmaxCrossEntropy(const NDArray& logits, const NDArray& labels,
                                 Labels known = Labels::kUnchecked);
// scale * (probabilities - one_hot(labels)).
void SoftmaxCrossEntropyGradInto(const NDArray& probabilities, const NDArray& labels, double scale,
                                 NDArray& gradient, Labels known = Labels::kUnchecked);

// The same for targets [batch, classes] that give each class its probability:
// loss = -sum(targets * log(softmax(logits))). Targets of zero add nothing, whatever the logit;
// targets need not sum to one.
CrossEntropy DenseCrossEntropy(const NDArray& logits, const NDArray& targets);
// scale * (probabilities * sum(targets) - targets).
void DenseCrossEntropyGradInto(const NDArray& probabilities, const NDArray& targets, double scale,
                               NDArray& gradient);

// [batch]: the mean over all axes but the first of (predictions - targets)^2. Rank 1 or more.
NDArray MeanSquaredError(const NDArray& predictions, const NDArray& targets);
void MeanSquaredErrorGradInto(const NDArray& predictions, const NDArray& targets, double scale,
                              NDArray& gradient);

// [batch]: the mean over all axes but the first of -t log(p) - (1 - t) log(1 - p), where
// p = 1 / (1 + exp(-logit)), worked out as max(x, 0) - x t + log(1 + exp(-|x|)): never infinite for
// a finite logit. Rank 1 or more.
NDArray BinaryCrossEntropy(const NDArray& logits, const NDArray& targets);
void BinaryCrossEntropyGradInto(const NDArray& logits, const NDArray& targets, double scale,
                                NDArray& gradient);

// [batch]: the means of |predictions - targets|, and of Huber's loss: d^2 / 2 for |d| of at most delta, beyond it the line
// delta * (|d| - delta / 2). Rank 1 or more; delta > 0.
NDArray MeanAbsoluteError(const NDArray& predictions, const NDArray& targets);
NDArray HuberError(const NDArray& predictions, const NDArray& targets, double delta = 1);
// By the gradient of the loss of each item, [batch]. The slope of |d| at 0 is 0.
void MeanAbsoluteErrorGradInto(const NDArray& predictions, const NDArray& targets,
                               const NDArray& loss_gradient, NDArray& gradient);
void HuberErrorGradInto(const NDArray& predictions, const NDArray& targets,
                        const NDArray& loss_gradient, double delta, NDArray& gradient);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_LOSS_H_
