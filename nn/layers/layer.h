// A layer: a function with parameters, its output and its gradients.
//
// A layer holds no arrays. Parameters and gradients belong to the network and are handed in; what
// the backward pass needs of the forward pass goes into a LayerCache of the pass, so one network
// may run on many threads. Layers allocate by calling operators: results land in the workspace the
// network has opened, and a layer drops each array as soon as it is used, which is what the
// workspace learns as its lifetime.
#ifndef TIDEPOOL_NN_LAYERS_LAYER_H_
#define TIDEPOOL_NN_LAYERS_LAYER_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

enum class Activation : uint8_t { kIdentity, kRelu };

// One array of parameters, before it exists.
struct ParameterSpec {
  std::string name;          // "weight", "bias", ...
  Shape shape;
  double uniform_bound = 0;  // initial values are uniform in [-bound, bound]; 0: all are `initial`
  double initial = 0;
};

// What one layer keeps from forward to backward in one pass.
struct LayerCache {
  NDArray input;
  NDArray output;
  NDArray kept[3];  // what else the layer needs
  void Clear() { *this = LayerCache(); }
};

struct LayerContext {
  absl::Span<const NDArray> parameters;  // in the order of Parameters()
  absl::Span<NDArray> gradients;         // same; empty when not training
  bool training = false;                 // false: parameters stay as they are for many calls
};

class Layer {
 public:
  virtual ~Layer() = default;

  // "dense 500 relu": everything that decides shapes and results. Kept in model files.
  virtual std::string Describe() const = 0;
  // One word for parameter names: "dense".
  virtual std::string Kind() const = 0;
  // Shapes without the batch. Throws kInvalidArgument when the input does not fit.
  virtual Shape OutputShape(const Shape& input) const = 0;
  virtual std::vector<ParameterSpec> Parameters(const Shape& /*input*/) const { return {}; }

  // The output for `input` [batch, ...]. Keeps what Backward needs in `cache` when training.
  virtual NDArray Forward(const LayerContext& context, const NDArray& input,
                          LayerCache& cache) const = 0;
  // Writes context.gradients, clears `cache`, returns the gradient of the input, or an undefined
  // array when it is not needed. `output_gradient` may be written over.
  virtual NDArray Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                           bool needs_input_gradient) const = 0;

  // What the layer is to an inference engine (nn/inference/frozen_network.h): sets kind, relu and attributes of `op`, whose
  // weight and bias are its Parameters() in that order. False: it is nothing that engines know.
  virtual bool ToFrozen(FrozenOp& /*op*/) const { return false; }

  // A layer that ends with a ReLU can leave its gradient to a following layer that can apply it in
  // a pass it makes anyway.
  virtual bool EndsWithRelu() const { return false; }
  virtual bool CanApplyReluGradient() const { return false; }
  virtual void LeaveReluGradientToNext() {}
  virtual void ApplyReluGradientOfPrevious() {}
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_LAYER_H_
