// What 8 bits cost a network, on data that stand for those to come.
//
//   std::puts(ReportQuantisation(network, options, samples, labels).ToString().c_str());
#ifndef TIDEPOOL_NN_INFERENCE_QUANTISATION_REPORT_H_
#define TIDEPOOL_NN_INFERENCE_QUANTISATION_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/nn/inference/frozen_network.h"

namespace tidepool::nn {

struct QuantisationReport {
  // One of the network, or several that are computed as one.
  struct Layer {
    std::string name;  // "layer 2 [dense 500 relu]"
    int number = 0;    // as float_layers takes it: the last one's of those that are computed as one
    bool is_quantised = false;  // else it computes in f32
    Quantisation output;        // that it has or would have; of dynamic ranges none, scale 0
    // Of the network's output, relative to its root mean square, when this layer alone computes in 8 bits.
    double error_alone = 0;
  };

  std::vector<Layer> layers;  // in the order of the network
  int worst_layer = 0;        // the number of that with the largest error alone
  double error = 0;           // of the whole as frozen
  double agreement = 0;       // part of the samples whose largest output is the same as f32's
  // With labels: part of the samples that are right.
  std::optional<double> float_accuracy, accuracy;
  int64_t samples = 0;                               // examples it was measured with
  int64_t float_weight_bytes = 0, weight_bytes = 0;  // in f32, and as frozen

  // A table for people.
  std::string ToString() const;
};

// Freezes the network to `options` (kInt8) and compares it on `samples` [count] + input_shape with f32. `labels`: none,
// or one each. Sizes of batches and threads of the options are not looked at. Throws as FrozenNetwork, and kInvalidArgument for another type, another number of labels, and
// a network whose output is not one axis. Cost: the samples through the network, and once more for each layer.
QuantisationReport ReportQuantisation(const Network& network, const FrozenOptions& options,
                                      const NDArray& samples,
                                      absl::Span<const int64_t> labels = {});

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_QUANTISATION_REPORT_H_
