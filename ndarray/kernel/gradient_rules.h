// Which operators compute the gradients of an operator, and of what: its row's column, with operands found by their names.
#ifndef TIDEPOOL_NDARRAY_KERNEL_GRADIENT_RULES_H_
#define TIDEPOOL_NDARRAY_KERNEL_GRADIENT_RULES_H_

#include <vector>

#include "tidepool/ndarray/kernel/op_code.h"

namespace tidepool {

// An operand of a gradient operator, as one of the operator that it belongs to.
struct GradientOperand {
  enum class From { kInput, kOutput, kOutputGradient };
  From from;
  int index;
  bool optional = false;
};

struct GradientRule {
  OpCode gradient;
  std::vector<GradientOperand> inputs;
  std::vector<int> with_respect_to;  // which input, by output
  // Takes no gradient of an output: of the sum of the first output, times the `scale` of its attributes.
  bool of_sum = false;
};

// Empty where the row has no operators in that column. Throws kInvalidArgument naming both operators and the operand where
// there is no operator of a name, or an operand is none of the operator's: of rows of one's own, as the list is tested.
std::vector<GradientRule> GradientRulesOf(OpCode op);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_GRADIENT_RULES_H_
