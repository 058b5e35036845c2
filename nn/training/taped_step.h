// Steps of LeNet and MLP by a GradientTape, on the parameters and gradients of a network whose layers have backward passes
// written by hand: what the tape costs is told by comparison.
#ifndef TIDEPOOL_NN_TRAINING_TAPED_STEP_H_
#define TIDEPOOL_NN_TRAINING_TAPED_STEP_H_

#include "tidepool/nn/network.h"

namespace tidepool::nn {

// As Network::ComputeGradients, of models.h's lenet and mlp. `gradients`: as network.gradients(); returns the mean loss. Call it
// in a scope of a workspace.
double GradientsByTape(const Network& network, NDArray& gradients, const NDArray& features, const NDArray& labels);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_TAPED_STEP_H_
