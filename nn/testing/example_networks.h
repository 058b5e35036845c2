// Networks of each kind on images and ten classes: chains, a residual graph, a program of blocks with a layer and a loss
// of its own, sequences of rows, and one that draws its images again.
#ifndef TIDEPOOL_NN_TESTING_EXAMPLE_NETWORKS_H_
#define TIDEPOOL_NN_TESTING_EXAMPLE_NETWORKS_H_

#include <string>

#include "tidepool/nn/network.h"

namespace tidepool::nn {

inline constexpr const char* kExampleNetworks[] = {"mlp",  "lenet",       "residual",   "program",
                                                   "lstm", "transformer", "autoencoder"};

// One of those, of images of `size` x `size`, a multiple of 4 from 16; throws kInvalidArgument for another name.
Network ExampleNetwork(const std::string& name, const NetworkOptions& options, int64_t size = 28);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TESTING_EXAMPLE_NETWORKS_H_
