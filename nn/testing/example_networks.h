// Networks of each kind on images of 28x28 and ten classes: chains, a residual graph, a program of blocks with a layer and a loss
// of its own.
#ifndef TIDEPOOL_NN_TESTING_EXAMPLE_NETWORKS_H_
#define TIDEPOOL_NN_TESTING_EXAMPLE_NETWORKS_H_

#include <string>

#include "tidepool/nn/network.h"

namespace tidepool::nn {

inline constexpr const char* kExampleNetworks[] = {"mlp",     "lenet", "residual",
                                                   "program", "lstm",  "transformer"};

// One of those; throws kInvalidArgument for another name.
Network ExampleNetwork(const std::string& name, const NetworkOptions& options);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TESTING_EXAMPLE_NETWORKS_H_
