// Activation functions by name, of layers that end with one and as a layer of its own.
#ifndef TIDEPOOL_NN_LAYERS_ACTIVATION_H_
#define TIDEPOOL_NN_LAYERS_ACTIVATION_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// By their names in files: identity, relu, leaky_relu (0.01), elu, selu, gelu, gelu_tanh, swish, mish, softplus, softsign, tanh,
// sigmoid, hard_sigmoid, softmax and log_softmax over the last axis.
enum class Activation : uint8_t {
  kIdentity,
  kRelu,
  kLeakyRelu,
  kElu,
  kSelu,
  kGelu,
  kGeluTanh,
  kSwish,
  kMish,
  kSoftplus,
  kSoftsign,
  kTanh,
  kSigmoid,
  kHardSigmoid,
  kSoftmax,
  kLogSoftmax,
};

absl::Span<const char* const> ActivationNames();
inline const char* ActivationName(Activation activation) {
  return ActivationNames()[static_cast<int>(activation)];
}

// In the current place; x itself for kIdentity.
NDArray Activate(Activation activation, const NDArray& x);

// " relu", to end a description with; nothing for kIdentity.
std::string ActivationText(Activation activation);
// He's initialiser before a ReLU and its like, Glorot's otherwise.
Initializer InitializerBefore(Activation activation);

// As engines know it: op.function, or for a softmax op.kind. False, with op.why_not, for those that they do not.
bool FreezeActivation(Activation activation, FrozenOp& op);

// The function alone.
class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(Activation activation = Activation::kRelu) : activation_(activation) {}

  std::string Kind() const override { return "activation"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  Activation activation_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_ACTIVATION_H_
