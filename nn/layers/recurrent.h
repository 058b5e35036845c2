// Recurrent layers, which read [length, width] sequences a step at a time and carry a state of
// `units` numbers:
//
//   Lstm (Hochreiter and Schmidhuber 1997, with a forget gate), Gru (Cho et al. 2014, in cuDNN's
//   form), SimpleRnn (Elman 1990): formulas and the order of gates in ndarray/ops/recurrent.h,
//   those of PyTorch
//
//   Lstm(128)                                 a chain of layers is a stack: [length, 128] each
//   Lstm(128, {.output = RecurrentOutput::kLast})  the state after the last step: [128]
//
// Parameters, of which gates lie one behind the other in the first axis: "input_weight" [gates *
// units, width], "recurrent_weight" [gates * units, units], orthogonal by gate unless said
// otherwise, "bias" [gates * units]; Gru has a "recurrent_bias" besides.
//
// Masks. A step that a sequence does not have passes the state through and gives zeros, wherever it
// is; so the last state is that after a sequence's own last step. The mask stays the output's where
// that is a sequence.
//
// States carried (LayerContext::carried; Network::RunOptions::states): h, and of Lstm c, [units]
// each. Gradients stop there: that is truncated back-propagation.
//
// Memory. Some steps are taken together, a "run" of at least 256 rows: one product of their inputs,
// then a step each. What is kept for the gradient is, by step, the cells' activations, Lstm's c and
// the output (of Gru also the product of the state). Without a tape: a run and the output.
// Gradients of weights are one product for each run. The layer's backward pass is written by hand
// (SetGradient): gradients of its gradients are an error of the tape's.
#ifndef TIDEPOOL_NN_LAYERS_RECURRENT_H_
#define TIDEPOOL_NN_LAYERS_RECURRENT_H_

#include <memory>
#include <string>
#include <vector>

#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

class RecurrentCell;

enum class RecurrentOutput : uint8_t {
  kSequence,  // of each step
  kLast,      // the state behind the last one
};

// What a recurrent layer may be given beside its units.
struct RecurrentOptions {
  RecurrentOutput output = RecurrentOutput::kSequence;  // what of the states is its output
  bool reversed = false;  // from the last step to the first; outputs stay where their steps are
  Initializer input_initializer, recurrent_initializer;  // of the weights of that name
};

// What the recurrent layers have in common; a layer of one's own derives from Layer instead.
class RecurrentLayer : public Layer {
 public:
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  std::vector<Shape> CarriedShapes(const Shape& input) const override;

  // As Forward, with the direction turned round.
  NDArray ForwardTurned(LayerContext& context, const NDArray& input) const;

  // As constructed.
  int64_t units() const { return units_; }
  const RecurrentOptions& options() const { return options_; }

 protected:
  RecurrentLayer(int64_t units, RecurrentOptions options) : units_(units), options_(options) {}
  // Biases, in the order they have behind the weights, by gate: constants that they start with.
  virtual std::vector<std::pair<const char*, std::vector<double>>> Biases() const = 0;
  // The formulas of a step, which live as long as the program.
  virtual const RecurrentCell& Cell() const = 0;

 private:
  NDArray Run(LayerContext& context, const NDArray& input, bool reversed) const;

  int64_t units_;
  RecurrentOptions options_;
};

// Long short-term memory: states h and c.
class Lstm final : public RecurrentLayer {
 public:
  // forget_bias: what the forget gate's bias starts with (Jozefowicz et al. 2015).
  explicit Lstm(int64_t units, RecurrentOptions options = {}, double forget_bias = 1)
      : RecurrentLayer(units, options), forget_bias_(forget_bias) {}
  std::string Kind() const override { return "lstm"; }
  void VisitFields(FieldVisitor& visitor) override;

 protected:
  std::vector<std::pair<const char*, std::vector<double>>> Biases() const override;
  const RecurrentCell& Cell() const override;

 private:
  double forget_bias_;
};

// Gated recurrent units: one state h, with the reset gate behind the product (cuDNN's form).
class Gru final : public RecurrentLayer {
 public:
  explicit Gru(int64_t units, RecurrentOptions options = {}) : RecurrentLayer(units, options) {}
  std::string Kind() const override { return "gru"; }

 protected:
  std::vector<std::pair<const char*, std::vector<double>>> Biases() const override;
  const RecurrentCell& Cell() const override;
};

// h' = tanh(x W^T + h R^T + b), or by max(0, .).
class SimpleRnn final : public RecurrentLayer {
 public:
  explicit SimpleRnn(int64_t units, RecurrentOptions options = {}, bool relu = false)
      : RecurrentLayer(units, options), relu_(relu) {}
  std::string Kind() const override { return "simple_rnn"; }
  void VisitFields(FieldVisitor& visitor) override;

 protected:
  std::vector<std::pair<const char*, std::vector<double>>> Biases() const override;
  const RecurrentCell& Cell() const override;

 private:
  bool relu_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_RECURRENT_H_
