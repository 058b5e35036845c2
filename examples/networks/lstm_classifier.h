// Two layers of LSTM that read a sequence and name its class at the end, trained by backpropagation through
// time with operators alone.
#ifndef TIDEPOOL_EXAMPLES_NETWORKS_LSTM_CLASSIFIER_H_
#define TIDEPOOL_EXAMPLES_NETWORKS_LSTM_CLASSIFIER_H_

#include <cstdint>

#include "tidepool/examples/networks/parameter.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/recurrent.h"

namespace tidepool::examples {

class LstmClassifier {
 public:
  LstmClassifier(int64_t inputs, int64_t units, int64_t classes, uint64_t seed,
                 Device device = Host());

  // One training step on sequences [steps, batch, inputs] and labels [batch] i64; the mean loss. All
  // arrays are on the network's device. What it makes is in the current place: call it inside a scope of
  // a workspace there.
  double Step(const NDArray& sequences, const NDArray& labels, double learning_rate);

 private:
  static constexpr int kLayers = 2;
  struct Layer {
    LstmWeights weights, gradients;
  };

  Parameters parameters_;
  int64_t units_;
  Layer layers_[kLayers];
  Parameter *weights_, *bias_;
};

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_NETWORKS_LSTM_CLASSIFIER_H_
