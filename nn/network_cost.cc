#include "tidepool/nn/network_cost.h"

#include "tidepool/nn/network/graph_body.h"

namespace tidepool::nn {

LayerCost CostOfExample(const NetworkConfig& config) { return GraphBody(config).cost_of_example(); }

}  // namespace tidepool::nn
