// Layers of every kind with inputs that fit them: what each test of all layers, and the comparison
// with PyTorch, goes through.
#ifndef TIDEPOOL_NN_LAYERS_TESTING_LAYER_CASES_H_
#define TIDEPOOL_NN_LAYERS_TESTING_LAYER_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/network_config.h"

namespace tidepool::nn {

struct LayerCase {
  std::string name;  // one word
  AnyLayer layer;
  std::vector<Shape> inputs;  // of one example
  int64_t entries = 0;        // of inputs that are indices: how many there are; 0: floats
  bool is_sequence = false;   // masks make sense
  bool by_batch = false;      // training is not inference
};

const std::vector<LayerCase>& LayerCases();
// Convolutions, pooling and recurrent layers of random sizes.
std::vector<LayerCase> RandomLayerCases(uint64_t seed, int count);

// What a call of a case is made with: `batch` examples, numbers by `seed`.
struct LayerArrays {
  std::vector<NDArray> inputs, parameters;
  NDArray mask;  // bool, of other lengths for each example, one of them with no step where there
                 // are three; undefined: none
};
LayerArrays ArraysFor(const LayerCase& c, DType dtype, int64_t batch, bool masked, uint64_t seed);

// A network of the case's layer alone, with the node "layer".
NetworkConfig ConfigOf(const LayerCase& c);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_TESTING_LAYER_CASES_H_
