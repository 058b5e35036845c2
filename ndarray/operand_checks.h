// What is refused before a kernel is looked for: dead operands, wrong numbers of them, absent ones, types that the operator's
// row does not have for them, and memory that operands share in a way that the operator does not allow. Quick where all
// is well: what says what is wrong is in the source.
#ifndef TIDEPOOL_NDARRAY_OPERAND_CHECKS_H_
#define TIDEPOOL_NDARRAY_OPERAND_CHECKS_H_

#include "absl/types/span.h"
#include "tidepool/ndarray/call_operands.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {

namespace internal {
[[noreturn]] void ThrowWrongAttributes(const OperatorInfo& info, AttributesRef attributes);
[[noreturn]] void ThrowWrongCounts(const OperatorInfo& info, size_t inputs, size_t outputs);
[[noreturn]] void ThrowNull(const OperatorInfo& info, const char* names, int index);
void CheckTypesByMarks(const OperatorInfo& info, DType key, const CallOperands& operands);
void CheckShapesByRule(OpCode op, absl::Span<const NDArray* const> inputs,
                       absl::Span<NDArray* const> outputs, AttributesRef attributes);
void CheckSharedMemory(OpCode op, AttributesRef attributes, const NDArray& input, int input_index,
                       const NDArray& output, int output_index);
}  // namespace internal

// `names`: the operands' in the row. Null ones are absent.
template <typename Array>
inline void CheckAlive(const char* op, const char* names, absl::Span<Array* const> operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const NDArray* const operand = operands[i];
    if (operand == nullptr || (operand->is_defined() && operand->IsInScope())) continue;
    operand->CheckAlive(op, OperandName(names, static_cast<int>(i)).c_str());
  }
}

inline void CheckCall(const OperatorInfo& info, size_t inputs, size_t outputs,
                      AttributesRef attributes) {
  if (!attributes.Is(info.attributes)) [[unlikely]]
    internal::ThrowWrongAttributes(info, attributes);
  if (inputs != static_cast<size_t>(info.input_count) ||
      outputs != static_cast<size_t>(info.output_count)) [[unlikely]] {
    internal::ThrowWrongCounts(info, inputs, outputs);
  }
}

// One of the outputs is null: says so, unless there are too many or too few.
[[noreturn]] void ThrowNullOutput(OpCode op, size_t inputs, absl::Span<NDArray* const> outputs,
                                  AttributesRef attributes);
// Inputs that are there are alive. Whether any is of another type.
inline bool CheckInputsAlive(const OperatorInfo& info, absl::Span<const NDArray* const> inputs,
                             DType type) {
  bool mixed = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const NDArray* const input = inputs[i];
    if (input == nullptr) continue;
    if (!input->is_defined() || !input->IsInScope()) [[unlikely]] {
      input->CheckAlive(info.name, OperandName(info.inputs, static_cast<int>(i)).c_str());
    }
    if (input->dtype() != type) [[unlikely]]
      mixed = true;
  }
  return mixed;
}
inline void CheckOutputsAlive(const OperatorInfo& info, absl::Span<NDArray* const> outputs) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    const NDArray& output = *outputs[o];
    if (output.is_defined() && output.IsInScope()) continue;
    output.CheckAlive(info.name, OperandName(info.outputs, static_cast<int>(o)).c_str());
  }
}
// Of an input that is null, once the attributes are known to be the operator's.
void CheckMayBeAbsent(OpCode op, const OperatorInfo& info, AttributesRef attributes, int input);

// The type that kernels are looked for by, of operands that are described. Throws unless all have the types that the row
// gives them; `mixed`: some differ, or the row has marks.
inline DType CheckTypes(const OperatorInfo& info, bool mixed, const CallOperands& operands) {
  const DType key = info.key_is_input() ? operands.inputs()[0].dtype : operands.outputs()[0].dtype;
  if (mixed) internal::CheckTypesByMarks(info, key, operands);
  return key;
}

// Whether an output may be the very same view as an input. Rows say so of all (kInPlace); beside them, on the host alone: the
// gradient of a maximum over windows that lie apart may be written over what it was taken of, as a window is read before it is
// written, and those of normalisation over what was normalised and the gradient behind it.
bool MayBeWrittenOver(OpCode op, AttributesRef attributes, int input, int output, Device device);

inline void CheckOverlap(OpCode op, AttributesRef attributes, const NDArray& input, int input_index,
                         const NDArray& output, int output_index) {
  if (!MayShareMemory(input.buffer().get(), output.buffer().get())) return;
  internal::CheckSharedMemory(op, attributes, input, input_index, output, output_index);
}

// Of outputs of one call: on one device, and nothing of one in the other.
void CheckApart(const OperatorInfo& info, const NDArray& one, int one_index, const NDArray& other,
                int other_index);

// Of operators that programs add, whose outputs have the shape that their row's rule says; the functions of ndarray/ops
// look at shapes for those of the list.
inline void CheckShapes(OpCode op, absl::Span<const NDArray* const> inputs,
                        absl::Span<NDArray* const> outputs, AttributesRef attributes) {
  if (static_cast<int>(op) >= kOpCodes) [[unlikely]]
    internal::CheckShapesByRule(op, inputs, outputs, attributes);
}

// Two elements of a view that is written to may not be one.
void CheckNoRepeats(OpCode op, const NDArray& output, int index);

// Whether an input has to be on the device of the outputs: arrays without elements are nowhere, and a call without
// anything to write reads nothing.
bool MustBeOnOneDevice(const NDArray& input, absl::Span<NDArray* const> outputs);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPERAND_CHECKS_H_
