// The operators. operator_list.inc is the one list that dispatch, contract tests and the kernel
// table are made from.
#ifndef TIDEPOOL_NDARRAY_KERNEL_OP_CODE_H_
#define TIDEPOOL_NDARRAY_KERNEL_OP_CODE_H_

#include <cstdint>
#include <string>

namespace tidepool {

enum class OpCode : uint8_t {
#define TIDEPOOL_OPERATOR(code, name, inputs, outputs, flags) k##code,
#include "tidepool/ndarray/kernel/operator_list.inc"
#undef TIDEPOOL_OPERATOR
};

inline constexpr int kOpCodes = 0
#define TIDEPOOL_OPERATOR(code, name, inputs, outputs, flags) +1
#include "tidepool/ndarray/kernel/operator_list.inc"
#undef TIDEPOOL_OPERATOR
    ;

struct OperatorInfo {
  const char* name;
  const char* inputs;   // comma-separated operand names
  const char* outputs;
  bool in_place;        // an output may be the same view as an input
  bool updates;         // outputs are read too
};

const OperatorInfo& Info(OpCode op);
// Name of the operand at `position` of a comma-separated list, without its marks.
std::string OperandName(const char* operands, int position);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_OP_CODE_H_
