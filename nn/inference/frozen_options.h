// What a network is frozen to. See frozen_network.h.
#ifndef TIDEPOOL_NN_INFERENCE_FROZEN_OPTIONS_H_
#define TIDEPOOL_NN_INFERENCE_FROZEN_OPTIONS_H_

#include <cstdint>
#include <vector>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

enum class FrozenType : uint8_t {
  kFloat32,
  // Weights and activations in 8 bits, sums in 32; inputs and outputs are f32 all the same. See QuantisedRanges.
  kInt8,
  // Weights, activations and sums within; inputs and outputs are f32. XNNPACK of 2022 emulates it on x86, several times slower than f32.
  kFloat16,
};

// How the range of an array's values is chosen from those that samples show. What lies outside becomes its ends.
enum class CalibrationMethod : uint8_t {
  kMeanSquaredError,  // with the least error of the samples' values
  kPercentile,        // which `percentile` percent of them lie in
  kExtremes,          // all of them
};

// Where kInt8 has the ranges of activations from.
enum class QuantisedRanges : uint8_t {
  // Those that `calibration` shows, the same for every batch; between layers values stay in 8 bits. Weights of convolutions have a
  // scale for each filter, those of dense layers one (XNNPACK's 2022 interface has no other).
  kStatic,
  // Dense layers alone: from the least to the largest number of each example, found when it comes, so that no samples are needed
  // and a number that is far out costs its own example alone. Weights have a scale for each unit; all other layers stay f32.
  // Differences below 1e-36 between numbers of an example do not count.
  kDynamic,
};

struct FrozenOptions {
  FrozenType type = FrozenType::kFloat32;
  // Sizes of batches to make runtimes for, 1 or more each.
  std::vector<int64_t> batches = {1};
  // Append a softmax along the classes, in f32.
  bool softmax = false;
  // Pieces of a batch that run at once, 1 to 1024.
  int threads = 1;

  // ---- of kInt8 alone ----
  QuantisedRanges ranges = QuantisedRanges::kStatic;
  // Layers that stay f32, by number: those that cost too much accuracy (ReportQuantisation names them).
  std::vector<int> float_layers = {};
  // ---- of static ranges alone ----
  // [samples] + the network's input_shape: some hundred examples like those to come. Read while freezing, which predictors do
  // again when the weights were written to: where the samples have gone by then, kernels compute from there on.
  NDArray calibration = {};
  CalibrationMethod method = CalibrationMethod::kMeanSquaredError;
  double percentile = 99.99;  // above 50, at most 100
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_FROZEN_OPTIONS_H_
