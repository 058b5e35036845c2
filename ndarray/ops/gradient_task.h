// The gradients of one call, computed with as little memory as they can be: operands that were kept for it go as soon as
// nothing reads them any more, results lie where they are wanted, or over a gradient or operand that nobody else has.
#ifndef TIDEPOOL_NDARRAY_OPS_GRADIENT_TASK_H_
#define TIDEPOOL_NDARRAY_OPS_GRADIENT_TASK_H_

#include <vector>

#include "tidepool/ndarray/ops/gradient_plan.h"

namespace tidepool {

// Filled and run again and again, by one thread. Undefined arrays are absent operands and gradients that are none.
struct GradientTask {
  OpCode op = OpCode::kAdd;
  const void* attributes = nullptr;  // of its type
  OperandSet wanted = 0;             // of which inputs, as InputBit
  bool is_strict = false;   // a wanted gradient that is not computed is an error, not undefined
  bool relu_done = false;   // the gradient has gone through the call's ReLU already
  bool relu_after = false;  // of a pooling: through that of the call before it
  // Gradients and operands that nobody else has. A tape that records what is computed here may want each for a gradient of its own.
  bool may_write_over = true;
  std::vector<NDArray> inputs, outputs, output_gradients;
  // By input: before Run where its gradient is to lie, if that is to be somewhere; afterwards the gradient. It may be another
  // array than the one asked for, a view whose elements repeat, or share memory with others.
  std::vector<NDArray> results;

  // Throws what operators do, and kUnimplemented where there are no gradients. What was taken is gone then.
  void Run(const GradientPlan& plan);
  // Drops all handles, keeps the memory they lay in.
  void Clear();

 private:
  friend struct RuleRun;
  void RunRules(const GradientPlan& plan);
  void RunFunction(const GradientPlan& plan);
  void CheckComplete() const;
  // Drops operands that are not needed any more.
  void Release(OperandSet operands);

  std::vector<const NDArray*> input_pointers_, output_pointers_;
  std::vector<NDArray*> destinations_;
  std::vector<NDArray> made_, unwanted_;  // of the rule under way
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_GRADIENT_TASK_H_
