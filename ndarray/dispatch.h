// Runs an operator: checks the operands, finds the kernel, gives it scratch.
#ifndef TIDEPOOL_NDARRAY_DISPATCH_H_
#define TIDEPOOL_NDARRAY_DISPATCH_H_

#include <initializer_list>

#include "absl/types/span.h"
#include "tidepool/memory/ownership/owner_node.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Throws kFailedPrecondition for a stale or closed operand before any shape is looked at; every
// function of ndarray/ops calls it first. Null operands are absent.
void CheckOperands(OpCode op, absl::Span<const NDArray* const> inputs);

// Where a result goes that was given no destination: to the manager entered last on this thread, else
// to that of the first operand that has one, else to its handles; and to that manager's place, or the
// current one; in any case on the device of the first operand that has elements (where none has any, of
// the first one on a device), on its heap if need be. Operands in the operator's order; null ones are absent.
Place PlaceOfOperands(const char* op, const char* names, absl::Span<const NDArray* const> operands);
Place ResultPlace(const char* op, absl::Span<const NDArray> operands);
// No manager and no device is in use in the process: results go to Place::Current() then.
inline bool ResultsGoHere() {
  return !owners_in_use.load(std::memory_order_relaxed) &&
         !devices_in_use.load(std::memory_order_relaxed);
}
// The same as PlaceOfOperands, for functions that are no operator and for operators; cheap where
// ResultsGoHere().
inline Place ResultPlace(const char* op, std::initializer_list<const NDArray*> operands) {
  if (ResultsGoHere()) return Place::Current();
  return PlaceOfOperands(op, nullptr, absl::MakeConstSpan(operands.begin(), operands.size()));
}
// For an operator, whose name and operands' names errors take from its row.
inline Place ResultPlace(OpCode op, std::initializer_list<const NDArray*> operands) {
  if (ResultsGoHere()) return Place::Current();
  return PlaceOfOperands(Info(op).name, Info(op).inputs,
                         absl::MakeConstSpan(operands.begin(), operands.size()));
}

// `inputs` and `outputs` in the order of operator_list.inc; null for an absent optional input.
// `attributes`: a pointer to the operator's struct (attributes.h), or null where it takes none. The kernel's data type is that of
// the first output, or of the first input where the list says so. At most kMostInputs and kMostOutputs.
// Throws kFailedPrecondition (stale operands), kInvalidArgument (attributes of another operator; fewer
// or more operands than it has, null where the row has no ?, of a type that the row does not have for them; outputs that
// overlap each other, or inputs in a way the operator does not allow; operands on different devices), kUnimplemented
// (no kernel: the message lists what is linked). The kernel has not run then. What a kernel's functions throw names the
// operator: an Error keeps its code and type, std::bad_alloc passes, all else becomes kInternal. Shapes of operators that
// programs add follow their row's rule, else kInvalidArgument; those of others, and values that a kernel goes by as indices,
// are the caller's to check. A call whose outputs are all empty does nothing. Views with gaps are copied for kernels that take dense operands only.
// Fill and copy need no kernel on any device, and copy takes operands on two.
void Dispatch(OpCode op, absl::Span<const NDArray* const> inputs,
              absl::Span<NDArray* const> outputs, AttributesRef attributes = {});

// What that call costs on any machine, by the operator's row (kernel/op_code.h): for profilers, and to tell how near to what
// a machine can do a call is. Nothing runs. Throws as Dispatch for operands that are dead, absent, too many, too few or of
// other types.
OperatorCost CostOf(OpCode op, absl::Span<const NDArray* const> inputs,
                    absl::Span<NDArray* const> outputs, AttributesRef attributes = {});

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_DISPATCH_H_
