// What a network takes for one example in inference, before it is made.
#ifndef TIDEPOOL_NN_NETWORK_COST_H_
#define TIDEPOOL_NN_NETWORK_COST_H_

#include "tidepool/nn/layers/layer_cost.h"
#include "tidepool/nn/network_config.h"

namespace tidepool::nn {

// The sum of Layer::CostOf, and the inputs among the elements. Throws as Network for a
// configuration that cannot be. Takes no memory by what it claims.
LayerCost CostOfExample(const NetworkConfig& config);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_COST_H_
