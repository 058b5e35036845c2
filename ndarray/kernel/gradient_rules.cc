#include "tidepool/ndarray/kernel/gradient_rules.h"

#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

std::optional<int> Find(const char* operands, int count, std::string_view name) {
  for (int i = 0; i < count; ++i) {
    if (OperandName(operands, i) == name) return i;
  }
  return std::nullopt;
}

// "dX" or "X_gradient" of the operands: X's place.
std::optional<int> FindGradient(const char* operands, int count, std::string_view name) {
  constexpr std::string_view kSuffix = "_gradient";
  if (name.starts_with("d")) {
    if (const auto found = Find(operands, count, name.substr(1))) return found;
  }
  if (name.ends_with(kSuffix))
    return Find(operands, count, name.substr(0, name.size() - kSuffix.size()));
  return std::nullopt;
}

bool IsOptional(const char* operands, int position) {
  const std::vector<std::string> all = absl::StrSplit(operands, ',');
  return all[static_cast<size_t>(position)].find('?') != std::string::npos;
}

[[noreturn]] void ThrowNoOperand(const OperatorInfo& forward, const OperatorInfo& gradient,
                                 const std::string& name) {
  ThrowInvalidArgument(absl::StrCat("operator \"", gradient.name, "\", gradient of \"",
                                    forward.name, "\": found operand ", name, ", expected one of (",
                                    forward.inputs, ") and (", forward.outputs,
                                    ") or, as dX or X_gradient, the gradient of one"));
}

GradientRule RuleOf(OpCode op, OpCode gradient_op) {
  using From = GradientOperand::From;
  const OperatorInfo &forward = Info(op), &gradient = Info(gradient_op);
  GradientRule rule{gradient_op, {}, {}, true};
  for (int i = 0; i < gradient.input_count; ++i) {
    const std::string name = OperandName(gradient.inputs, i);
    const bool optional = IsOptional(gradient.inputs, i);
    if (const auto input = Find(forward.inputs, forward.input_count, name)) {
      rule.inputs.push_back({From::kInput, *input, optional});
    } else if (const auto output = Find(forward.outputs, forward.output_count, name)) {
      rule.inputs.push_back({From::kOutput, *output, optional});
    } else if (const auto of = FindGradient(forward.outputs, forward.output_count, name)) {
      rule.inputs.push_back({From::kOutputGradient, *of, optional});
      rule.of_sum = false;
    } else {
      ThrowNoOperand(forward, gradient, name);
    }
  }
  for (int o = 0; o < gradient.output_count; ++o) {
    const std::string name = OperandName(gradient.outputs, o);
    const auto of = name == "gradient" ? std::optional<int>(0)
                                       : FindGradient(forward.inputs, forward.input_count, name);
    if (!of) ThrowNoOperand(forward, gradient, name);
    rule.with_respect_to.push_back(*of);
  }
  return rule;
}

}  // namespace

std::vector<GradientRule> GradientRulesOf(OpCode op) {
  std::vector<GradientRule> rules;
  const OperatorInfo& info = Info(op);
  if (!info.has_gradient_operators()) return rules;
  const std::vector<std::string> names = absl::StrSplit(info.gradient, ',');
  for (const std::string& name : names) {
    const std::optional<OpCode> gradient = FindOperator(name);
    if (!gradient) {
      ThrowInvalidArgument(absl::StrCat("operator \"", info.name, "\": found gradient \"", name,
                                        "\", expected the name of an operator"));
    }
    rules.push_back(RuleOf(op, *gradient));
  }
  return rules;
}

}  // namespace tidepool
