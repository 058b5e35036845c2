// The networks of train_benchmark, by name. Its peers make the same by hand
// (train_benchmark_torch.cc, torch_training.py).
#ifndef TIDEPOOL_TOOLS_BENCHMARKS_TRAINING_NETWORKS_H_
#define TIDEPOOL_TOOLS_BENCHMARKS_TRAINING_NETWORKS_H_

#include <string>

#include "tidepool/nn/network_config.h"

namespace tidepool::tools {

// Of images [height, width, 1]:
//   mlp, lenet    nn/models.h
//   residual      nn::ResidualConfig with stages of 32 and 64 channels
//   lstm          an image's rows are the steps: two layers of 128, the last state, one output per
//                 class
//   transformer   an image's rows are the steps: 128 wide, learned places, two blocks of four
//                 heads, normalised, their mean, one output per class
// Throws kInvalidArgument for another name, naming these.
nn::NetworkConfig TrainingNetwork(const std::string& model, const Shape& image, int64_t classes);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_BENCHMARKS_TRAINING_NETWORKS_H_
