// Steps of LeNet and MLP whose backward pass is written by hand, on the parameters of a network: what the tape that networks
// train by costs is told by comparison.
#ifndef TIDEPOOL_NN_TRAINING_HAND_STEP_H_
#define TIDEPOOL_NN_TRAINING_HAND_STEP_H_

#include "absl/functional/function_ref.h"
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

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_HAND_STEP_H_
