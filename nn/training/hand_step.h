// Steps of LeNet and MLP that no network makes, on the parameters of one: what the tape that networks train by costs is told
// by comparison with a backward pass that is written by hand, and what networks add by comparison with the tape alone.
#ifndef TIDEPOOL_NN_TRAINING_HAND_STEP_H_
#define TIDEPOOL_NN_TRAINING_HAND_STEP_H_

#include "absl/functional/function_ref.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// As Network::ComputeGradients, of models.h's lenet and mlp. `gradients`: as network.gradients(); returns the mean loss. Call it
// in a scope of a workspace.
double GradientsByHand(const Network& network, NDArray& gradients, const NDArray& features,
                       const NDArray& labels);

// As Network::QueueGradients, of inputs that are where the network is and labels that were checked: nothing waits, so that a
// device may capture it. `share` likewise: where null it is a number that replays of a captured step
// cannot change.
void QueueGradientsByHand(const Network& network, NDArray& gradients, const NDArray& features,
                          const NDArray& labels, absl::FunctionRef<void(const NDArray&)> use_losses,
                          const NDArray* share = nullptr);

// The same gradients by a tape that the caller keeps from step to step; the forward pass is written by hand.
double GradientsByTape(GradientTape& tape, const Network& network, NDArray& gradients,
                       const NDArray& features, const NDArray& labels);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_HAND_STEP_H_
