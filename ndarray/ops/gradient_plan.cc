#include "tidepool/ndarray/ops/gradient_plan.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/ops/composed_gradients.h"

namespace tidepool {
namespace {

using From = GradientOperand::From;

constinit std::mutex making;

void AddRuleNeeds(const OperatorInfo& info, GradientPlan* plan) {
  plan->flows = 0;
  for (const GradientRule& rule : plan->rules) {
    OperandSet needs = 0;
    if (rule.of_sum) plan->flows |= 1;
    for (const GradientOperand& operand : rule.inputs) {
      if (operand.from == From::kInput) needs |= InputBit(operand.index);
      if (operand.from == From::kOutput) needs |= OutputBit(operand.index);
      if (operand.from == From::kOutputGradient) plan->flows |= 1u << operand.index;
    }
    for (const int input : rule.with_respect_to) plan->needs[input] |= needs;
  }
  for (int i = 0; i < info.input_count; ++i) {
    bool given = false;
    for (const GradientRule& rule : plan->rules) {
      for (const int input : rule.with_respect_to) given = given || input == i;
    }
    if (!given && OperandName(info.inputs, i) == "bias") plan->bias = i;
  }
}

// Of rows whose attributes say whether a call ends with a ReLU or adds to its result.
bool IsByAttributes(OpCode op) {
  switch (op) {
    case OpCode::kMatMul:
    case OpCode::kConv2d:
    case OpCode::kConv3d:
    case OpCode::kConv2dGradFilter:
    case OpCode::kConv3dGradFilter:
      return true;
    default:
      return false;
  }
}

std::unique_ptr<GradientPlan> MakePlan(OpCode op) {
  const OperatorInfo& info = Info(op);
  auto plan = std::make_unique<GradientPlan>();
  plan->is_plain = !info.updates() && !IsByAttributes(op);
  plan->rules = GradientRulesOf(op);
  if (!plan->rules.empty()) {
    plan->kind = GradientPlan::Kind::kRules;
    AddRuleNeeds(info, plan.get());
    if (op == OpCode::kSquaredError)
      plan->needs[1] = plan->needs[0];  // it is that of the other side
  } else if (const ComposedGradient* const composed = ComposedGradientOf(op)) {
    plan->kind = GradientPlan::Kind::kFunction;
    plan->function = composed->function;
    for (int i = 0; i < kComposedInputs; ++i) plan->needs[i] = composed->needs[i];
  } else if (std::strcmp(info.gradient, operator_list::kNoGradient) == 0) {
    plan->kind = GradientPlan::Kind::kNone;
  }
  return plan;
}

}  // namespace

// Plans are read without a lock once made, and stay for the process's life: who holds one does not ask again.
constinit std::atomic<const GradientPlan*> internal::plans[kMaxOpCodes] = {};

const GradientPlan& internal::MakePlanOf(OpCode op) {
  Info(op);  // refuses codes that no operator has
  std::atomic<const GradientPlan*>& place = plans[static_cast<int>(op)];
  std::unique_ptr<GradientPlan> made = MakePlan(op);
  const GradientPlan* none = nullptr;
  if (place.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel))
    return *made.release();
  return *none;
}

bool AddGradient(OpCode op, GradientFunction function, OperandSet needs) {
  const OperatorInfo& info = Info(op);
  if (std::strcmp(info.gradient, operator_list::kComposed) != 0) {
    ThrowInvalidArgument(absl::StrCat("operator \"", info.name, "\": its row says gradient \"",
                                      info.gradient,
                                      "\", expected kComposed where a function is added"));
  }
  const std::lock_guard<std::mutex> lock(making);
  const GradientPlan& old = PlanOf(op);
  if (old.function != nullptr || function == nullptr) {
    ThrowInvalidArgument(absl::StrCat(
        "operator \"", info.name, "\": found ",
        function == nullptr ? "null" : "a second function for its gradient", ", expected one"));
  }
  auto plan = std::make_unique<GradientPlan>(old);
  plan->kind = GradientPlan::Kind::kFunction;
  plan->function = function;
  for (OperandSet& of_input : plan->needs) of_input = needs;
  // The old one stays: another thread may be reading it.
  internal::plans[static_cast<int>(op)].store(plan.release(), std::memory_order_release);
  return true;
}

bool EndsWithRelu(OpCode op, const void* attributes) {
  switch (op) {
    case OpCode::kMatMul:
      return static_cast<const MatMulAttributes*>(attributes)->relu;
    case OpCode::kConv2d:
      return static_cast<const Conv2dAttributes*>(attributes)->relu;
    case OpCode::kConv3d:
      return static_cast<const Conv3dAttributes*>(attributes)->relu;
    default:
      return false;
  }
}

bool AddsToResult(OpCode op, const void* attributes) {
  switch (op) {
    case OpCode::kMatMul:
      return static_cast<const MatMulAttributes*>(attributes)->accumulate;
    case OpCode::kConv2dGradFilter:
      return static_cast<const Conv2dAttributes*>(attributes)->accumulate;
    case OpCode::kConv3dGradFilter:
      return static_cast<const Conv3dAttributes*>(attributes)->accumulate;
    default:
      return false;
  }
}

EarlierValues EarlierValuesOf(OpCode op, const void* attributes) {
  if (AddsToResult(op, attributes)) {
    return EndsWithRelu(op, attributes) ? EarlierValues::kFlowThroughRelu : EarlierValues::kFlowOn;
  }
  if (!Info(op).updates()) return EarlierValues::kAreOverwritten;
  if (op == OpCode::kScatter) {
    switch (static_cast<const ScatterAttributes*>(attributes)->reduction) {
      case ScatterReduction::kAdd:
        return EarlierValues::kFlowOn;
      case ScatterReduction::kNone:
        return EarlierValues::kAreOverwrittenAtPlaces;
      default:
        return EarlierValues::kAreUnknown;
    }
  }
  return PlanOf(op).kind != GradientPlan::Kind::kUnwritten ? EarlierValues::kFlowOn
                                                           : EarlierValues::kAreUnknown;
}

OperandSet GradientPlan::NeedsOfResult(OpCode op, OperandSet wanted, const void* attributes) {
  return wanted != 0 && EndsWithRelu(op, attributes) ? OutputBit(0) : OperandSet{0};
}

}  // namespace tidepool
