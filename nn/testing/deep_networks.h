// Networks whose activations wait long: many blocks alike, one behind the other. Images of 28x28, ten classes.
#ifndef TIDEPOOL_NN_TESTING_DEEP_NETWORKS_H_
#define TIDEPOOL_NN_TESTING_DEEP_NETWORKS_H_

#include <string>

#include "tidepool/memory/workspace/workspace_config.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

inline constexpr const char* kDeepNetworks[] = {"convolutions", "residual", "lstm", "transformer"};

// Of `depth` blocks; the transformer drops out. Throws kInvalidArgument for another name.
Network DeepNetwork(const std::string& name, int depth, const NetworkOptions& options);

// With a training workspace that looks for better places for a few hundredths of a second.
inline NetworkOptions SearchingBriefly(NetworkOptions options) {
  options.training_workspace = WorkspaceConfig::Inference();
  options.training_workspace->plan_search_seconds = 0.02;
  return options;
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TESTING_DEEP_NETWORKS_H_
