// A network that is frozen for inference, as an engine takes it: operators, each behind those whose
// outputs it takes, with their own copies of their weights. Threads: a value.
#ifndef TIDEPOOL_NDARRAY_FROZEN_FROZEN_GRAPH_H_
#define TIDEPOOL_NDARRAY_FROZEN_FROZEN_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/ndarray/float16.h"
#include "tidepool/ndarray/frozen/frozen_values.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {

// How 8-bit values stand for real ones: real = scale * (value - zero_point). Scale 0: the values
// are f32.
struct Quantisation {
  float scale = 0;
  int32_t zero_point = 0;  // -128 to 127

  friend bool operator==(const Quantisation&, const Quantisation&) = default;
};

struct FrozenOp {
  enum class Kind : uint8_t {
    kDense,   // weight [units, inputs], bias [units]; the input is flattened
    kConv2d,  // weight [filters, kernel height, kernel width, channels / groups], bias [filters]
    // Transposed: the weight as that of a kConv2d with this output. (Layers have it as that of the convolution that they
    // transpose; freezing turns it.)
    kConv2dTranspose,
    kResize2d,  // [height, width, channels]
    kMaxPool2d,
    kAveragePool2d,
    kGlobalAverage,  // [height, width, channels] becomes [channels]
    kAdd,            // of two inputs or more
    kMultiply,
    kFunction,  // of each element
    kPRelu,     // weight [channels], of the last axis
    kReshape,
    kSoftmax,  // along the last axis
    // What layers are before they are folded into others; no engine sees it: x * scale + shift by
    // four parameters of the last axis, scale, shift, mean and variance (`epsilon`).
    kNormalisation,
  };
  enum class Function : uint8_t { kNone, kRelu, kLeakyRelu, kElu, kSigmoid, kSwish };
  static constexpr int kGraphInput = -1;

  Kind kind = Kind::kDense;
  std::string name;   // "layer 2 [dense 500 relu]"
  bool relu = false;  // of what it computes: products, add, multiply
  // Of kFunction. A layer sets it for what follows its own work, too; freezing makes operators of
  // it.
  Function function = Function::kNone;
  // Operators by number, each before this one, or kGraphInput. Empty: the one before, of the first
  // the graph's input.
  std::vector<int> inputs;
  Conv2dAttributes convolution;
  int64_t output_padding[2] = {0, 0};  // of kConv2dTranspose: height, width
  Pool2dAttributes pooling;
  ResizeAttributes resize;
  double epsilon = 0;
  Shape input_shape, output_shape;  // of one example; all inputs have the one shape
  std::string why_not;              // see Layer::ToFrozen

  Shape weight_shape;
  FrozenValues<float> weight, bias;
  // Instead of `weight` where products are computed by 16-bit floats.
  FrozenValues<Float16> half_weight;

  // Layers of the network, by number, whose work it does; the output is the last one's.
  std::vector<int> layers;
  // Or the layer that it begins and another operator ends, so that its output is no layer's; -1: none.
  int begun_layer = -1;

  // An operator whose `output` has a scale computes in 8 bits, from these: `weight_scales` is one
  // for all, or one for each filter. The bias counts in input.scale * its weight's scale.
  Quantisation input, output;
  // What its output is as 8 bits for those that take it so, whether it computes them or not.
  Quantisation range;
  // A dense layer of f32 whose weights are `quantised_weight`, with one of `weight_scales` for each unit, and whose input is put
  // into 8 bits when it comes, each example by its own least and largest number. The bias is f32. kDense alone.
  bool has_dynamic_range = false;
  FrozenValues<int8_t> quantised_weight;
  FrozenValues<int32_t> quantised_bias;
  std::vector<float> weight_scales;

  bool has_products() const {
    return kind == Kind::kDense || kind == Kind::kConv2d || kind == Kind::kConv2dTranspose;
  }
  bool is_quantised() const { return output.scale > 0; }
  // Of the weights and the bias.
  int64_t constant_bytes() const {
    return static_cast<int64_t>(
        (weight.size() + bias.size() + quantised_bias.size() + weight_scales.size()) * 4 +
        half_weight.size() * 2 + quantised_weight.size());
  }
};

struct FrozenGraph {
  Shape input_shape;  // of one example
  Quantisation input_range;
  std::vector<FrozenOp> ops;  // at least one; the last one's output is the graph's
  // Everything within is computed by 16-bit floats; the input and the output are f32.
  bool is_half = false;

  const Shape& output_shape() const { return ops.back().output_shape; }
  // The operators, or kGraphInput, that `op` takes.
  std::vector<int> InputsOf(int op) const {
    const FrozenOp& of = ops[static_cast<size_t>(op)];
    return of.inputs.empty() ? std::vector<int>{op - 1} : of.inputs;
  }
  const Shape& ShapeOf(int value) const {
    return value == FrozenOp::kGraphInput ? input_shape
                                          : ops[static_cast<size_t>(value)].output_shape;
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_FROZEN_FROZEN_GRAPH_H_
