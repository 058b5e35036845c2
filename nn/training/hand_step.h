// Steps of LeNet and MLP whose backward pass is written by hand, on the parameters of a network: what the tape that networks
// train by costs is told by comparison.
#ifndef TIDEPOOL_NN_TRAINING_HAND_STEP_H_
#define TIDEPOOL_NN_TRAINING_HAND_STEP_H_

#include "tidepool/nn/network.h"

namespace tidepool::nn {

// As Network::ComputeGradients, of models.h's lenet and mlp. `gradients`: as network.gradients(); returns the mean loss. Call it
// in a scope of a workspace.
double GradientsByHand(const Network& network, NDArray& gradients, const NDArray& features,
                       const NDArray& labels);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_HAND_STEP_H_
