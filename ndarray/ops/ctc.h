// Connectionist temporal classification (CTC): the loss of a sequence of labels whose places in a
// longer input are not known, over all alignments. f32, f64.
//
// log_probabilities [batch, time, classes], as LogSoftmax gives them; labels [batch, most labels]
// i64, of each example the first label_lengths[b], none of them the blank; input_lengths and
// label_lengths [batch] i64. A path has one class a frame; it gives the labels that are left when
// classes that repeat are taken once and blanks are taken out. The loss is -log(the sum of the
// probabilities of all paths that give the labels).
//
// An example whose labels need more frames than it has (one each, and one between equal neighbours)
// has no path: its loss is infinite and its gradient 0; with zero_infinity its loss is 0. Checked
// (Labels::kUnchecked), it is an error without zero_infinity. Of no frames and no labels the loss
// is 0.
//
// Results are in the current place. Errors: kInvalidArgument naming operand, example, found,
// expected. Cost: the checks read labels and lengths on the host. frames * labels sums of
// logarithms each way, in double; the backward pass makes the forward sums again, in scratch, so
// that nothing is kept between them but log_probabilities. Threads share examples.
#ifndef TIDEPOOL_NDARRAY_OPS_CTC_H_
#define TIDEPOOL_NDARRAY_OPS_CTC_H_

#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/loss.h"

namespace tidepool {

// What CtcLoss checks of labels and lengths: that they are in range, labels not the blank, and,
// unless zero_infinity, that there is a path.
void CheckCtcLabels(const NDArray& labels, const NDArray& input_lengths,
                    const NDArray& label_lengths, int64_t frames, int64_t classes,
                    const CtcAttributes& attributes = {});

// [batch].
NDArray CtcLoss(const NDArray& log_probabilities, const NDArray& labels,
                const NDArray& input_lengths, const NDArray& label_lengths,
                const CtcAttributes& attributes = {}, Labels known = Labels::kUnchecked);
// With respect to log_probabilities, by the gradient of each example's loss [batch]. Not checked;
// what is out of range has no probability.
NDArray CtcLossGrad(const NDArray& log_probabilities, const NDArray& labels,
                    const NDArray& input_lengths, const NDArray& label_lengths,
                    const NDArray& loss_gradient, const CtcAttributes& attributes = {});

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_CTC_H_
