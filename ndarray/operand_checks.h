// What is refused before a kernel is looked for: dead operands, wrong numbers of them, and memory that operands share in a
// way that the operator does not allow. Quick where all is well: what says what is wrong is in the source.
#ifndef TIDEPOOL_NDARRAY_OPERAND_CHECKS_H_
#define TIDEPOOL_NDARRAY_OPERAND_CHECKS_H_

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {

namespace internal {
[[noreturn]] void ThrowWrongAttributes(const OperatorInfo& info, AttributesRef attributes);
[[noreturn]] void ThrowWrongCounts(const OperatorInfo& info, size_t inputs, size_t outputs);
void CheckSharedMemory(const OperatorInfo& info, const NDArray& input, int input_index, const NDArray& output,
                       int output_index);
}  // namespace internal

// `names`: the operands' in the row.
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
  if (!attributes.Is(info.attributes)) [[unlikely]] internal::ThrowWrongAttributes(info, attributes);
  if (inputs != static_cast<size_t>(info.input_count) ||
      outputs != static_cast<size_t>(info.output_count)) [[unlikely]] {
    internal::ThrowWrongCounts(info, inputs, outputs);
  }
}

inline void CheckOverlap(const OperatorInfo& info, const NDArray& input, int input_index,
                         const NDArray& output, int output_index) {
  if (!MayShareMemory(input.buffer().get(), output.buffer().get())) return;
  internal::CheckSharedMemory(info, input, input_index, output, output_index);
}

// Of outputs of one call.
void CheckApart(const OperatorInfo& info, const NDArray& one, int one_index, const NDArray& other, int other_index);

// Two elements of a view that is written to may not be one.
void CheckNoRepeats(OpCode op, const NDArray& output, int index);

// Whether an input has to be on the device of the outputs: arrays without elements are nowhere, and a call without
// anything to write reads nothing.
bool MustBeOnOneDevice(const NDArray& input, absl::Span<NDArray* const> outputs);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPERAND_CHECKS_H_
