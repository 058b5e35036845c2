// Quantisation: ranges from samples, weights and biases in 8 and 32 bits; weights alone where ranges are dynamic.
#ifndef TIDEPOOL_NN_INFERENCE_QUANTISE_H_
#define TIDEPOOL_NN_INFERENCE_QUANTISE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/nn/inference/frozen_options.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// Of values from `low` to `high`, with a number for 0 exactly, as padding and ReLU want it. The scale is a normal number.
Quantisation QuantisationOf(double low, double high);

// Which part of the values' range to keep. `counts`: of values in equal parts of [low, high].
struct ValueRange {
  double low, high;
};
ValueRange ChooseRange(double low, double high, absl::Span<const int64_t> counts,
                       CalibrationMethod method, double percentile);

// Of the network's input and each layer's output, from options.calibration. Throws kInvalidArgument for samples that do not
// fit, are none or not finite, and a percentile that is none. Cost: the network twice over the samples.
std::vector<Quantisation> Calibrate(const Network& network, const FrozenOptions& options);

// `graph`, whose operators are f32, with those in 8 bits that are not in `float_layers`. Throws kInvalidArgument for a
// layer that there is not.
FrozenGraph Quantised(FrozenGraph graph, const std::vector<Quantisation>& values,
                      const std::vector<int>& float_layers);

// `graph`, whose operators are f32, with dense layers of dynamic ranges that are not in `float_layers`, of a network of `layers`.
// Throws kInvalidArgument for a layer that there is not.
FrozenGraph DynamicallyQuantised(FrozenGraph graph, int layers,
                                 const std::vector<int>& float_layers);

// `graph` of `network` as options.ranges says. Throws as these, and kUnimplemented for dynamic ranges of a network without
// dense layers.
FrozenGraph QuantisedAs(const FrozenOptions& options, const Network& network, FrozenGraph graph);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_QUANTISE_H_
