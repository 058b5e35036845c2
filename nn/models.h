// The networks the command line knows by name.
#ifndef TIDEPOOL_NN_MODELS_H_
#define TIDEPOOL_NN_MODELS_H_

#include <string>
#include <vector>

#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// LeNet as Caffe and DL4J have it (after LeCun et al. 1998): 20 and 50 filters of 5x5, each with a
// 2x2 pooling, 500 dense, one output per class.
std::vector<AnyLayer> LeNetLayers(int64_t classes);
// 256 and 128 dense, one output per class.
std::vector<AnyLayer> MlpLayers(int64_t classes);
// By name: "lenet" or "mlp". Throws kInvalidArgument for anything else, naming the two.
std::vector<AnyLayer> LayersOf(const std::string& model, int64_t classes);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_MODELS_H_
