#include "tidepool/ndarray/ops/gradients.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/gradient_plan.h"
#include "tidepool/ndarray/ops/gradient_task.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

using Operands = absl::Span<const NDArray* const>;

void CheckCall(const OperatorInfo& info, Operands inputs, Operands outputs,
               Operands output_gradients) {
  const auto check = [&](const char* what, size_t found, int expected) {
    if (found == static_cast<size_t>(expected)) return;
    ThrowInvalidArgument(absl::StrCat("Op [", info.name, "], gradients: found ", found, " ", what,
                                      ", expected ", expected));
  };
  check("inputs", inputs.size(), info.input_count);
  check("outputs", outputs.size(), info.output_count);
  check("gradients of outputs", output_gradients.size(), info.output_count);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const NDArray* const gradient = output_gradients[o];
    if (outputs[o] == nullptr || !outputs[o]->is_defined()) {
      ThrowInvalidArgument(absl::StrCat("Op [", info.name, "], gradients: output ",
                                        OperandName(info.outputs, static_cast<int>(o)),
                                        " is missing, expected what the call computed"));
    }
    if (gradient == nullptr ||
        (gradient->shape() == outputs[o]->shape() && gradient->dtype() == outputs[o]->dtype())) {
      continue;
    }
    ThrowInvalidArgument(absl::StrCat(
        "Op [", info.name, "]: the gradient of output ",
        OperandName(info.outputs, static_cast<int>(o)), " is ", DTypeName(gradient->dtype()),
        " of shape ", gradient->shape().ToString(), ", expected ", DTypeName(outputs[o]->dtype()),
        " of shape ", outputs[o]->shape().ToString()));
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

}  // namespace

bool HasGradients(OpCode op) {
  const GradientPlan::Kind kind = PlanOf(op).kind;
  return kind == GradientPlan::Kind::kRules || kind == GradientPlan::Kind::kFunction;
}

std::vector<NDArray> Gradients(OpCode op, Operands inputs, Operands outputs,
                               Operands output_gradients, AttributesRef attributes) {
  const OperatorInfo& info = Info(op);
  CheckOperands(op, inputs);
  CheckCall(info, inputs, outputs, output_gradients);
  if (!attributes.Is(info.attributes)) {
    ThrowInvalidArgument(absl::StrCat("Op [", info.name, "], gradients: found attributes ",
                                      attributes.type_name(), ", expected ",
                                      info.attributes.name()));
  }
  const GradientPlan& plan = PlanOf(op);
  if (HasGradients(op)) CheckFlows(info, output_gradients, plan.flows);
  GradientTask task;
  task.op = op;
  task.attributes = attributes.data();
  const auto copy = [](Operands from, std::vector<NDArray>* to) {
    for (const NDArray* array : from) to->push_back(array != nullptr ? *array : NDArray());
  };
  copy(inputs, &task.inputs);
  copy(outputs, &task.outputs);
  copy(output_gradients, &task.output_gradients);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != nullptr) task.wanted |= InputBit(static_cast<int>(i));
  }
  task.Run(plan);
  for (NDArray& gradient : task.results) {
    if (gradient.is_defined() && MayRepeat(gradient)) gradient = gradient.Dup();
  }
  return std::move(task.results);
}

}  // namespace tidepool
