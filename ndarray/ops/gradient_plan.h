// How the gradients of an operator are computed, found once: by gradient operators, by a function, or why not.
#ifndef TIDEPOOL_NDARRAY_OPS_GRADIENT_PLAN_H_
#define TIDEPOOL_NDARRAY_OPS_GRADIENT_PLAN_H_

#include <atomic>
#include <bit>
#include <vector>

#include "tidepool/ndarray/kernel/gradient_rules.h"
#include "tidepool/ndarray/ops/gradients.h"

namespace tidepool {

struct GradientPlan {
  enum class Kind : uint8_t {
    kNone,       // nothing follows from inputs moved a little
    kUnwritten,  // there would be some
    kRules,
    kFunction,
  };
  Kind kind = Kind::kUnwritten;
  std::vector<GradientRule> rules;
  GradientFunction function = nullptr;
  int bias = -1;  // the input that is added to each row of the result, by rules
  OperandSet needs[kMostInputs] = {};  // by input: whose elements its gradient is computed from
  uint32_t flows = 1;                  // from which outputs, a bit each
  // Whatever a call's attributes: it overwrites what its results held, and ends with no ReLU.
  bool is_plain = false;

  // The same of several inputs, for a call with those attributes.
  OperandSet NeedsOf(OpCode op, OperandSet wanted, const void* attributes) const {
    OperandSet set = is_plain ? 0 : NeedsOfResult(op, wanted, attributes);
    for (; wanted != 0; wanted &= wanted - 1) set |= needs[std::countr_zero(wanted)];
    return set;
  }

 private:
  static OperandSet NeedsOfResult(OpCode op, OperandSet wanted, const void* attributes);
};

namespace internal {
extern constinit std::atomic<const GradientPlan*> plans[kMaxOpCodes];
const GradientPlan& MakePlanOf(OpCode op);
}  // namespace internal

// Never changes once it has been asked for, but where AddGradient adds a function to a kUnwritten one. Any thread. Throws as
// GradientRulesOf.
inline const GradientPlan& PlanOf(OpCode op) {
  if (static_cast<int>(op) < kMaxOpCodes) [[likely]] {
    const GradientPlan* const plan =
        internal::plans[static_cast<int>(op)].load(std::memory_order_acquire);
    if (plan != nullptr) [[likely]]
      return *plan;
  }
  return internal::MakePlanOf(op);
}

// Of products and convolutions that end with a ReLU: its gradient comes first, by the result.
bool EndsWithRelu(OpCode op, const void* attributes);
// Of products and convolutions that add to their result.
bool AddsToResult(OpCode op, const void* attributes);

// What a call does with the values that its results held before.
enum class EarlierValues : uint8_t {
  kAreOverwritten,
  kFlowOn,                  // unchanged, with something added
  kFlowThroughRelu,         // the same, and a ReLU of the sum
  kAreOverwrittenAtPlaces,  // those that input 1 names; the others stay
  kAreUnknown,              // nobody has written their gradient
};
// Of rows that update and have no gradient (steps of updaters, running averages) kFlowOn: as a write that is not recorded.
EarlierValues EarlierValuesOf(OpCode op, const void* attributes);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_GRADIENT_PLAN_H_
