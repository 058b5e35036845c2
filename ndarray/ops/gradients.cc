#include "tidepool/ndarray/ops/gradients.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/gradient_rules.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/composed_gradients.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using From = GradientOperand::From;
using Operands = absl::Span<const NDArray* const>;

constinit std::atomic<GradientFunction> added[kMaxOpCodes] = {};

GradientFunction FunctionOf(OpCode op) {
  if (const GradientFunction function = ComposedGradientOf(op)) return function;
  return added[static_cast<int>(op)].load(std::memory_order_acquire);
}

void CheckCall(const OperatorInfo& info, Operands inputs, Operands outputs, Operands output_gradients) {
  const auto check = [&](const char* what, size_t found, int expected) {
    if (found == static_cast<size_t>(expected)) return;
    ThrowInvalidArgument(absl::StrCat("Op [", info.name, "], gradients: found ", found, " ", what, ", expected ", expected));
  };
  check("inputs", inputs.size(), info.input_count);
  check("outputs", outputs.size(), info.output_count);
  check("gradients of outputs", output_gradients.size(), info.output_count);
  for (size_t o = 0; o < output_gradients.size(); ++o) {
    const NDArray* const gradient = output_gradients[o];
    if (gradient == nullptr || (gradient->shape() == outputs[o]->shape() && gradient->dtype() == outputs[o]->dtype())) {
      continue;
    }
    ThrowInvalidArgument(absl::StrCat("Op [", info.name, "]: the gradient of output ",
                                      OperandName(info.outputs, static_cast<int>(o)), " is ", DTypeName(gradient->dtype()),
                                      " of shape ", gradient->shape().ToString(), ", expected ",
                                      DTypeName(outputs[o]->dtype()), " of shape ", outputs[o]->shape().ToString()));
  }
}

// What flows from no output cannot be asked for.
void CheckFlows(const OperatorInfo& info, Operands output_gradients, uint32_t flowing) {
  for (size_t o = 0; o < output_gradients.size(); ++o) {
    if (output_gradients[o] == nullptr || (flowing >> o & 1) != 0) continue;
    ThrowInvalidArgument(absl::StrCat("Op [", info.name, "]: found a gradient of output ",
                                      OperandName(info.outputs, static_cast<int>(o)),
                                      ", from which none is computed; expected null"));
  }
}

// One gradient operator: its results go to where they are with respect to.
class RuleCall {
 public:
  RuleCall(OpCode op, Operands inputs, Operands outputs, Operands output_gradients, AttributesRef attributes)
      : op_(op), inputs_(inputs), outputs_(outputs), output_gradients_(output_gradients), attributes_(attributes) {}

  void Run(const GradientRule& rule, std::vector<NDArray>* gradients) const {
    std::vector<NDArray> made, results;
    made.reserve(rule.inputs.size());
    std::vector<const NDArray*> inputs;
    for (const GradientOperand& operand : rule.inputs) inputs.push_back(OperandOf(operand, &made));
    for (const int input : rule.with_respect_to) {
      const NDArray& of = *inputs_[static_cast<size_t>(input)];
      results.push_back(NDArray(of.shape(), of.dtype(), Place::CurrentOn(of.device())));
    }
    std::vector<NDArray*> outputs;
    for (NDArray& result : results) outputs.push_back(&result);
    const LossGradAttributes loss{1};
    const CrossEntropyGradAttributes entropy{1};
    Dispatch(rule.gradient, inputs, absl::MakeConstSpan(outputs), AttributesOf(rule, loss, entropy));
    for (size_t o = 0; o < results.size(); ++o) {
      if (rule.of_sum) results[o] = Weighted(results[o]);
      (*gradients)[static_cast<size_t>(rule.with_respect_to[o])] = results[o];
    }
  }

 private:
  const NDArray* OperandOf(const GradientOperand& operand, std::vector<NDArray>* made) const {
    const auto index = static_cast<size_t>(operand.index);
    const NDArray* const found = operand.from == From::kInput    ? inputs_[index]
                                 : operand.from == From::kOutput ? outputs_[index]
                                                                 : output_gradients_[index];
    if (found != nullptr || operand.optional || operand.from != From::kOutputGradient) return found;
    const NDArray& z = *outputs_[index];
    made->push_back(Zeros(z.shape(), z.dtype(), Place::Scratch(z.device())));
    return &made->back();
  }

  // The operator's own, or, of a loss, a scale of 1.
  AttributesRef AttributesOf(const GradientRule& rule, const LossGradAttributes& loss,
                             const CrossEntropyGradAttributes& entropy) const {
    const AttributesType type = Info(rule.gradient).attributes;
    if (type == AttributesType::Of<NoAttributes>()) return {};
    if (type == Info(op_).attributes) return attributes_;
    if (rule.of_sum && type == AttributesType::Of<LossGradAttributes>()) return &loss;
    if (rule.of_sum && type == AttributesType::Of<CrossEntropyGradAttributes>()) return &entropy;
    ThrowInvalidArgument(absl::StrCat("Op [", Info(rule.gradient).name, "], gradient of [", Info(op_).name,
                                      "]: it takes attributes ", type.name(), ", expected those of [", Info(op_).name,
                                      "] or none"));
  }

  // By the gradient of each row's loss: gradients of losses are of their sum.
  NDArray Weighted(const NDArray& gradient) const {
    const NDArray& dz = *output_gradients_[0];
    std::vector<int64_t> dims(dz.shape().span().begin(), dz.shape().span().end());
    dims.resize(static_cast<size_t>(gradient.rank()), 1);
    return gradient * dz.ReshapeOrCopy(Shape(dims));
  }

  OpCode op_;
  Operands inputs_, outputs_, output_gradients_;
  AttributesRef attributes_;
};

bool HasFusedRelu(OpCode op, AttributesRef attributes) {
  if (op == OpCode::kConv3d) return static_cast<const Conv3dAttributes*>(attributes.data())->relu;
  return op == OpCode::kConv2d && static_cast<const Conv2dAttributes*>(attributes.data())->relu;
}

std::vector<NDArray> ByRules(OpCode op, const std::vector<GradientRule>& rules, Operands inputs, Operands outputs,
                             Operands output_gradients, AttributesRef attributes) {
  const OperatorInfo& info = Info(op);
  uint32_t flowing = 0;
  for (const GradientRule& rule : rules) {
    if (rule.of_sum) flowing |= 1;
    for (const GradientOperand& operand : rule.inputs) {
      if (operand.from == From::kOutputGradient) flowing |= 1u << operand.index;
    }
  }
  CheckFlows(info, output_gradients, flowing);
  std::vector<NDArray> gradients(inputs.size());
  std::vector<const NDArray*> of_outputs(output_gradients.begin(), output_gradients.end());
  NDArray before_relu;
  if (of_outputs[0] == nullptr && rules[0].of_sum) return gradients;
  if (of_outputs[0] != nullptr && HasFusedRelu(op, attributes)) {
    before_relu = ReluGrad(*outputs[0], *of_outputs[0]);
    of_outputs[0] = &before_relu;
  }
  const RuleCall call(op, inputs, outputs, of_outputs, attributes);
  for (const GradientRule& rule : rules) call.Run(rule, &gradients);
  // What is added to each row of the result.
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr || gradients[i].is_defined() || of_outputs[0] == nullptr) continue;
    if (OperandName(info.inputs, static_cast<int>(i)) == "bias") gradients[i] = SumTo(*of_outputs[0], inputs[i]->shape());
  }
  return gradients;
}

}  // namespace

bool HasGradients(OpCode op) { return Info(op).has_gradient_operators() || FunctionOf(op) != nullptr; }

std::vector<NDArray> Gradients(OpCode op, Operands inputs, Operands outputs, Operands output_gradients,
                               AttributesRef attributes) {
  const OperatorInfo& info = Info(op);
  CheckOperands(op, inputs);
  CheckCall(info, inputs, outputs, output_gradients);
  if (!attributes.Is(info.attributes)) {
    ThrowInvalidArgument(absl::StrCat("Op [", info.name, "], gradients: found attributes ", attributes.type_name(),
                                      ", expected ", info.attributes.name()));
  }
  if (const std::vector<GradientRule> rules = GradientRulesOf(op); !rules.empty()) {
    return ByRules(op, rules, inputs, outputs, output_gradients, attributes);
  }
  const GradientFunction function = FunctionOf(op);
  if (function == nullptr) {
    ThrowUnimplemented(absl::StrCat("Op [", info.name, "]: it has no gradients; its row says \"", info.gradient,
                                    "\" (ndarray/kernel/operator_list.inc)"));
  }
  CheckFlows(info, output_gradients, 1);
  std::vector<NDArray> gradients(inputs.size());
  if (output_gradients[0] == nullptr) return gradients;
  std::vector<NDArray> found = function({op, inputs, outputs, *output_gradients[0], attributes.data()});
  for (size_t i = 0; i < found.size() && i < inputs.size(); ++i) {
    const NDArray* const input = inputs[i];
    if (!found[i].is_defined() || input == nullptr || !IsFloating(input->dtype())) continue;
    gradients[i] = Cast(SumTo(found[i], input->shape()), input->dtype());
  }
  return gradients;
}

bool AddGradient(OpCode op, GradientFunction function) {
  const OperatorInfo& info = Info(op);
  if (std::string(info.gradient) != operator_list::kComposed) {
    ThrowInvalidArgument(absl::StrCat("operator \"", info.name, "\": its row says gradient \"", info.gradient,
                                      "\", expected kComposed where a function is added"));
  }
  GradientFunction none = nullptr;
  if (ComposedGradientOf(op) != nullptr || function == nullptr ||
      !added[static_cast<int>(op)].compare_exchange_strong(none, function, std::memory_order_acq_rel)) {
    ThrowInvalidArgument(absl::StrCat("operator \"", info.name, "\": found ",
                                      function == nullptr ? "null" : "a second function for its gradient",
                                      ", expected one"));
  }
  return true;
}

}  // namespace tidepool
