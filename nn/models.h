// Networks that are made by a call: those the command line knows by name, and a residual one.
#ifndef TIDEPOOL_NN_MODELS_H_
#define TIDEPOOL_NN_MODELS_H_

#include <string>
#include <vector>

#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/network_config.h"

namespace tidepool::nn {

// LeNet as Caffe and DL4J have it (after LeCun et al. 1998): 20 and 50 filters of 5x5, each with a
// 2x2 pooling, 500 dense, one output per class.
std::vector<AnyLayer> LeNetLayers(int64_t classes);
// 256 and 128 dense, one output per class.
std::vector<AnyLayer> MlpLayers(int64_t classes);
// By name: "lenet" or "mlp". Throws kInvalidArgument for anything else, naming the two.
std::vector<AnyLayer> LayersOf(const std::string& model, int64_t classes);

// A residual network (He et al. 2015) of images [height, width, channels]: a 3x3 convolution
// "stem", then a stage for each of `channels` (at least one), "1", "2" and so on, of two such
// convolutions
// ("1_first", "1_second") with what comes into the stage added to what comes out. Every stage but
// the first halves height and width, and a 1x1 convolution ("2_around") fits what is added. Each
// convolution has batch normalisation behind it ("1_first_norm"). At the end the mean over the
// image and one output per class ("classes").
NetworkConfig ResidualConfig(const Shape& image, int64_t classes,
                             const std::vector<int64_t>& channels);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_MODELS_H_
