// A layer: what its parameters are, and the function of its inputs that it computes.
//
// A layer is an immutable value without arrays, so networks and threads may share it. Parameters belong to the network and are
// handed in. There is no backward pass to write: a network trains by a GradientTape (ndarray/gradient/gradient_tape.h), which
// records what Forward() calls; who knows better says so with SetGradient(). Operators make their results in the workspace that
// the network has opened, and a layer lets each array go once it is used, which is what the workspace learns as its
// lifetime.
//
// A layer of one's own:
//
//   class Scaled final : public Layer {
//    public:
//     std::string Kind() const override { return "scaled"; }
//     Shape OutputShape(const Shape& input) const override { return input; }
//     std::vector<ParameterSpec> Parameters(const Shape& input) const override { return {{"scale", input, Initializer::Ones()}}; }
//     NDArray Forward(LayerContext& context, const NDArray& x) const override { return x * context.parameters[0]; }
//   };
//
// Shapes are those of one example: arrays have the batch in front of them.
#ifndef TIDEPOOL_NN_LAYERS_LAYER_H_
#define TIDEPOOL_NN_LAYERS_LAYER_H_

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/layers/field_visitor.h"
#include "tidepool/nn/layers/initializer.h"
#include "tidepool/nn/layers/layer_cost.h"

namespace tidepool {
struct FrozenOp;  // ndarray/frozen/frozen_graph.h
}  // namespace tidepool

namespace tidepool::nn {

// A few arrays, as inputs and outputs of networks are: no memory is taken for two.
using Arrays = absl::InlinedVector<NDArray, 2>;

// What a call of a layer has beside its inputs.
struct LayerContext {
  absl::Span<const NDArray>
      parameters;         // in the order of Parameters(), on the inputs' device and of their type
  bool training = false;  // false: in inference, and of a frozen layer in a step of training too
  bool parameters_stay = false;  // for many calls: to pack them once pays
  // Of what the layer draws at random in this call: different in each step and for each layer of a network.
  uint64_t seed = 0, stream = 0;
  // [batch, length], of the first input that has one: 1 where a sequence has an element, 0 behind its end; undefined: it has all.
  // Afterwards that of the output: a layer without steps in its output clears it.
  NDArray mask;
  // Of a layer of several inputs in a network: that of each input, undefined where it has all; otherwise empty.
  absl::Span<const NDArray> masks;
  // Of CarriedShapes() with the batch in front: the states at the beginning, undefined for zeros, and afterwards those at the
  // end. Empty where the caller carries nothing.
  absl::Span<NDArray> carried;
};

// What a layer's inputs may be, and of which type its output is then.
enum class InputTypes : uint8_t {
  kAny,       // the layer's own business, and the output's: looked at where they are used
  kAlike,     // anything, all of one type, of which the output is too: elements are moved
  kFloats,    // floating-point numbers, as parameters are; so is the output
  kIntegers,  // indices, say, of which the layer makes floats
};

class Layer {
 public:
  virtual ~Layer() = default;

  // One word, of files and of parameters' names: "dense".
  virtual std::string Kind() const = 0;
  // Everything that decides shapes and results, by name, for files. Called to read as well: fields have their defaults then.
  virtual void VisitFields(FieldVisitor& /*visitor*/) {}
  // For messages and reports: "dense 500 relu". The kind and the fields as they are unless overridden.
  virtual std::string Describe() const;

  // Of all inputs. A network checks it when it is made, as far as types are known then, and in each call: kInvalidArgument with
  // the layer, the input, found and expected.
  virtual InputTypes TakenTypes() const { return InputTypes::kAny; }

  // ---- Layers of one input ----

  // Throws kInvalidArgument when the input does not fit.
  virtual Shape OutputShape(const Shape& input) const;
  // Names, shapes and beginnings of what Forward() is handed, in its order.
  virtual std::vector<ParameterSpec> Parameters(const Shape& /*input*/) const { return {}; }
  // The output for `input` [batch, ...], in the current place. It may be the input or a view of it.
  virtual NDArray Forward(LayerContext& context, const NDArray& input) const;

  // ---- Layers of several; by default those above, of one, and no parameters of several ----

  // As those of one input, for the shapes or arrays of all inputs in the order of the graph.
  virtual Shape OutputShapeOf(absl::Span<const Shape> inputs) const;
  virtual std::vector<ParameterSpec> ParametersOf(absl::Span<const Shape> inputs) const;
  virtual NDArray ForwardOf(LayerContext& context, absl::Span<const NDArray> inputs) const;

  // Of shapes that OutputShapeOf takes. What limits networks of files (model_file.h) goes by it. By default the output is all that
  // is made, and each parameter counts at each place of the inputs or the output, whichever has more: a layer that computes
  // more than that (a window without parameters, pairs of steps), or very much less, says so.
  virtual LayerCost CostOf(absl::Span<const Shape> inputs) const;

  // States that a layer of sequences takes on from one part of a sequence to the next, for each example.
  virtual std::vector<Shape> CarriedShapes(const Shape& /*input*/) const { return {}; }
  // Whether training draws random numbers: such steps are not captured.
  virtual bool IsRandom() const { return false; }

  // What the layer is to an inference engine (nn/inference/frozen_network.h): sets kind, function and attributes of `op`, which
  // has the shapes of its inputs and output already; its Parameters() are those that the kind has. False: engines know
  // nothing like it, for the reason that it may leave in op.why_not.
  virtual bool ToFrozen(FrozenOp& /*op*/) const { return false; }

 protected:
  // Throws kInvalidArgument: "layer [dense 10]: input shape [...], expected ...".
  [[noreturn]] void RefuseInput(const Shape& input, const std::string& expected) const;
  // Of a layer that uses each parameter `times` times.
  LayerCost CostWith(absl::Span<const Shape> inputs, double times) const;
};

// A layer of any class, shared and immutable: made of a layer or a pointer to one where it is handed over.
class AnyLayer {
 public:
  AnyLayer() = default;  // none
  template <std::derived_from<Layer> L>
  AnyLayer(L layer)
      : layer_(std::make_shared<const L>(std::move(layer))) {}  // NOLINT: implicit on purpose
  template <std::derived_from<Layer> L>
  AnyLayer(std::unique_ptr<L> layer) : layer_(std::move(layer)) {}  // NOLINT
  template <std::derived_from<Layer> L>
  AnyLayer(std::shared_ptr<const L> layer) : layer_(std::move(layer)) {}  // NOLINT

  // Whether there is a layer, and what it is; without one the latter two are not to be called.
  explicit operator bool() const { return layer_ != nullptr; }
  const Layer& operator*() const { return *layer_; }
  const Layer* operator->() const { return layer_.get(); }

 private:
  std::shared_ptr<const Layer> layer_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_LAYER_H_
