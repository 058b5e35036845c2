// Networks whose activations wait long: many blocks alike, one behind the other. Images of 28x28, ten classes.
#ifndef TIDEPOOL_NN_TESTING_DEEP_NETWORKS_H_
#define TIDEPOOL_NN_TESTING_DEEP_NETWORKS_H_

#include <string>

#include "tidepool/nn/network.h"

namespace tidepool::nn {

inline constexpr const char* kDeepNetworks[] = {"convolutions", "residual", "lstm", "transformer"};

// Of `depth` blocks; the transformer drops out. Throws kInvalidArgument for another name.
Network DeepNetwork(const std::string& name, int depth, const NetworkOptions& options);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TESTING_DEEP_NETWORKS_H_
