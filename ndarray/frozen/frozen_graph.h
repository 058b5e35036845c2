// A network that is frozen for inference, as an engine takes it: operators one behind the other, each with
// its own copy of its weights. Threads: a value.
#ifndef TIDEPOOL_NDARRAY_FROZEN_FROZEN_GRAPH_H_
#define TIDEPOOL_NDARRAY_FROZEN_FROZEN_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {

// How 8-bit values stand for real ones: real = scale * (value - zero_point). Scale 0: the values are f32.
struct Quantisation {
  float scale = 0;
  int32_t zero_point = 0;  // -128 to 127

  friend bool operator==(const Quantisation&, const Quantisation&) = default;
};

struct FrozenOp {
  enum class Kind : uint8_t {
    kDense,      // weight [units, inputs], bias [units]; the input is flattened
    kConv2d,     // weight [filters, kernel height, kernel width, channels / groups], bias [filters]
    kMaxPool2d,
    kSoftmax,    // along the last axis
  };

  Kind kind = Kind::kDense;
  std::string name;  // "layer 2 [dense 500 relu]"
  bool relu = false;
  Conv2dAttributes convolution;
  Pool2dAttributes pooling;
  Shape input_shape, output_shape;  // of one example

  Shape weight_shape;
  std::vector<float> weight, bias;

  // An operator whose output has a scale computes in 8 bits, from these: `weight_scales` is one for all, or
  // one for each filter. The bias counts in input.scale * its weight's scale.
  Quantisation input, output;
  std::vector<int8_t> quantised_weight;
  std::vector<int32_t> quantised_bias;
  std::vector<float> weight_scales;

  bool is_quantised() const { return output.scale > 0; }
  // Of the weights and the bias.
  int64_t constant_bytes() const {
    return static_cast<int64_t>((weight.size() + bias.size() + quantised_bias.size() + weight_scales.size()) * 4 +
                                quantised_weight.size());
  }
};

struct FrozenGraph {
  Shape input_shape;  // of one example
  std::vector<FrozenOp> ops;  // at least one

  const Shape& output_shape() const { return ops.back().output_shape; }
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_FROZEN_FROZEN_GRAPH_H_
