#include "tidepool/nn/layers/activation.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/layers/sequence_mask.h"

namespace tidepool::nn {
namespace {

constexpr const char* kNames[] = {"identity", "relu",         "leaky_relu", "elu",
                                  "selu",     "gelu",         "gelu_tanh",  "swish",
                                  "mish",     "softplus",     "softsign",   "tanh",
                                  "sigmoid",  "hard_sigmoid", "softmax",    "log_softmax"};

// Klambauer et al. 2017.
constexpr double kSeluScale = 1.0507009873554805, kSeluAlpha = 1.6732632423543772;

}  // namespace

absl::Span<const char* const> ActivationNames() { return kNames; }

NDArray Activate(Activation activation, const NDArray& x) {
  switch (activation) {
    case Activation::kIdentity:
      return x;
    case Activation::kRelu:
      return Relu(x);
    case Activation::kLeakyRelu:
      return LeakyRelu(x);
    case Activation::kElu:
      return Elu(x);
    case Activation::kSelu:
      return Elu(x, kSeluAlpha) * kSeluScale;  // Elu is x where x > 0
    case Activation::kGelu:
      return Gelu(x);
    case Activation::kGeluTanh:
      return Gelu(x, GeluForm::kTanh);
    case Activation::kSwish:
      return Swish(x);
    case Activation::kMish:
      return Mish(x);
    case Activation::kSoftplus:
      return Softplus(x);
    case Activation::kSoftsign:
      return x / (Abs(x) + 1.0);
    case Activation::kTanh:
      return Tanh(x);
    case Activation::kSigmoid:
      return Sigmoid(x);
    case Activation::kHardSigmoid:
      return Clip(x * (1.0 / 6) + 0.5, 0, 1);
    case Activation::kSoftmax:
      return Softmax(x);
    case Activation::kLogSoftmax:
      return LogSoftmax(x);
  }
  ThrowInvalidArgument(
      absl::StrCat("activation is ", static_cast<int>(activation), ", expected one of the names"));
}

std::string ActivationText(Activation activation) {
  return activation == Activation::kIdentity ? "" : absl::StrCat(" ", ActivationName(activation));
}

Initializer InitializerBefore(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
    case Activation::kLeakyRelu:
    case Activation::kElu:
    case Activation::kGelu:
    case Activation::kGeluTanh:
    case Activation::kSwish:
    case Activation::kMish:
      return Initializer::HeUniform();
    default:
      return Initializer::GlorotUniform();
  }
}

void ActivationLayer::VisitFields(FieldVisitor& visitor) {
  visitor.Choice("function", activation_, kNames);
}
std::string ActivationLayer::Describe() const { return ActivationName(activation_); }

Shape ActivationLayer::OutputShape(const Shape& input) const {
  if (input.rank() < 1 &&
      (activation_ == Activation::kSoftmax || activation_ == Activation::kLogSoftmax)) {
    RefuseInput(input, "at least one axis");
  }
  return input;
}

// A gradient of zero times that of a function where x is NaN or infinite would be NaN.
NDArray ActivationLayer::Forward(LayerContext& context, const NDArray& input) const {
  return Activate(activation_, WithoutMasked(context.mask, input));
}

bool FreezeActivation(Activation activation, FrozenOp& op) {
  switch (activation) {
    case Activation::kIdentity:
      return true;
    case Activation::kRelu:
      op.function = FrozenOp::Function::kRelu;
      return true;
    case Activation::kLeakyRelu:
      op.function = FrozenOp::Function::kLeakyRelu;
      return true;
    case Activation::kElu:
      op.function = FrozenOp::Function::kElu;
      return true;
    case Activation::kSigmoid:
      op.function = FrozenOp::Function::kSigmoid;
      return true;
    case Activation::kSwish:
      op.function = FrozenOp::Function::kSwish;
      return true;
    default:
      op.why_not = absl::StrCat("the function ", ActivationName(activation));
      return false;
  }
}

bool ActivationLayer::ToFrozen(FrozenOp& op) const {
  op.kind =
      activation_ == Activation::kSoftmax ? FrozenOp::Kind::kSoftmax : FrozenOp::Kind::kFunction;
  return activation_ == Activation::kSoftmax || FreezeActivation(activation_, op);
}

}  // namespace tidepool::nn
