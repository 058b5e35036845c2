// The operators. operator_list.inc is the one list that dispatch, contract tests and the kernel
// table are made from; programs add operators of their own beside it:
//
//   OpCode MyHypot() {
//     static const OpCode op = AddOperator({.name = "my_hypot", .inputs = "X,Y", .outputs = "Z",
//                                           .types = SetOf(DType::kFloat32),
//                                           .gradient = "my_hypot_grad", .cost = operator_list::Each(12)});
//     return op;
//   }
//
// Kernels are registered and contracts tested for it as for one of the list, and Dispatch() runs it.
#ifndef TIDEPOOL_NDARRAY_KERNEL_OP_CODE_H_
#define TIDEPOOL_NDARRAY_KERNEL_OP_CODE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/attributes_type.h"

namespace tidepool {

// The operators of the list, kAdd and so on; added ones have the numbers from kOpCodes on.
enum class OpCode : uint16_t {
#define TIDEPOOL_OPERATOR(code, ...) k##code,
#include "tidepool/ndarray/kernel/operator_list.inc"
#undef TIDEPOOL_OPERATOR
};

// How many the list has.
inline constexpr int kOpCodes = 0
#define TIDEPOOL_OPERATOR(...) +1
#include "tidepool/ndarray/kernel/operator_list.inc"
#undef TIDEPOOL_OPERATOR
    ;

// Most operators that there can be, added ones included, and most operands of one.
inline constexpr int kMaxOpCodes = 512;
inline constexpr int kMostInputs = 10;
inline constexpr int kMostOutputs = 4;

// What the list's columns say; operator_list.inc explains them.
namespace operator_list {
inline constexpr uint8_t kInPlace = 1, kUpdates = 2, kKeyIsInput = 4, kHeavy = 8;
inline constexpr DTypeSet kF32 = SetOf(DType::kFloat32), kF64 = SetOf(DType::kFloat64),
                          kF16 = SetOf(DType::kFloat16), kBF16 = SetOf(DType::kBFloat16),
                          kI8 = SetOf(DType::kInt8), kU8 = SetOf(DType::kUInt8),
                          kI32 = SetOf(DType::kInt32), kI64 = SetOf(DType::kInt64),
                          kI16 = SetOf(DType::kInt16), kU16 = SetOf(DType::kUInt16),
                          kU32 = SetOf(DType::kUInt32), kU64 = SetOf(DType::kUInt64),
                          kBoolean = SetOf(DType::kBool), kFloats = kF32 | kF64 | kF16 | kBF16,
                          kIntegers = kI8 | kU8 | kI16 | kU16 | kI32 | kU32 | kI64 | kU64,
                          kNumbers = kFloats | kIntegers, kAllTypes = kNumbers | kBoolean;
inline constexpr char kNoGradient[] = "none", kComposed[] = "composed", kUnwritten[] = "unwritten";
}  // namespace operator_list

// What the shapes of an operator's outputs are, as those of its inputs have it.
enum class ShapeRule : uint8_t {
  kOwnShape,   // the operator's function in ndarray/ops knows
  kLikeFirst,  // all those of the first input
  kBroadcast,  // all those to which the inputs broadcast
  kReduced,    // that of the first input without the axes of ReduceAttributes
};
namespace operator_list {
using enum ShapeRule;
}  // namespace operator_list

struct KernelCall;

// What a call costs on any machine: operations as additions and products count, of other functions about as many
// as take as long; and the bytes that are read and written at least once.
struct OperatorCost {
  double operations = 0;  // not all additions: see above
  double bytes = 0;       // of operands, once each
};

// How to tell; operator_cost.h does it.
struct CostRule {
  float each_output = 0;  // operations for each element of the first output
  float each_input = 0;   // and of the first input
  // What the numbers above cannot say: changes a cost whose bytes are those of all operands.
  void (*adjust)(const KernelCall& call, OperatorCost& cost) = nullptr;

  constexpr CostRule() = default;
  constexpr CostRule(float of_output, float of_input)
      : each_output(of_output), each_input(of_input) {}
  constexpr CostRule(void (*function)(const KernelCall&, OperatorCost&))
      : adjust(function) {}  // NOLINT: a row's column
  bool operator==(const CostRule&) const = default;
};
namespace operator_list {
// So many operations for each element: of the first output, of the first input.
constexpr CostRule Each(float operations) { return {operations, 0}; }
constexpr CostRule EachIn(float operations) { return {0, operations}; }
}  // namespace operator_list

// What stands behind an operand's name (operand_marks.h).
struct OperandMark {
  uint8_t type = 0;       // of the words for types; 0: none, it is of the kernel's type
  bool optional = false;  // may be absent
};

// A row of the list, or an added one. operator_list.inc explains the columns.
struct OperatorInfo {
  const char* name = "";                   // "add": lower case, once
  const char* inputs = "";                 // comma-separated operand names, with marks
  const char* outputs = "";                // likewise
  AttributesType attributes = {};          // the struct that a call takes; none: no attributes
  uint8_t flags = 0;                       // kInPlace and its like, in operator_list
  DTypeSet types = 0;                      // that it is defined for
  ShapeRule shape = ShapeRule::kOwnShape;  // how outputs' shapes follow
  const char* gradient = operator_list::kUnwritten;  // operators that compute it, or why none do
  CostRule cost;                                     // of a call

  // From the names; whoever adds an operator leaves them out.
  int8_t input_count = 0;  // of those named, optional ones included
  int8_t output_count = 0;
  bool has_marks = false;  // any operand
  OperandMark marks[kMostInputs + kMostOutputs] = {};

  // Marks of operand i, from 0, and what the flags say.
  constexpr const OperandMark& input_mark(int i) const { return marks[i]; }
  constexpr const OperandMark& output_mark(int o) const { return marks[kMostInputs + o]; }
  bool in_place() const { return (flags & operator_list::kInPlace) != 0; }
  bool updates() const { return (flags & operator_list::kUpdates) != 0; }
  constexpr bool key_is_input() const { return (flags & operator_list::kKeyIsInput) != 0; }
  bool heavy() const { return (flags & operator_list::kHeavy) != 0; }
  // Whether `gradient` is names of operators.
  bool has_gradient_operators() const;
};

namespace internal {
extern const OperatorInfo kListedOperators[kOpCodes];
const OperatorInfo& InfoOfAdded(OpCode op);
}  // namespace internal

// kInvalidArgument for codes that no operator has.
inline const OperatorInfo& Info(OpCode op) {
  const int code = static_cast<int>(op);
  return code < kOpCodes ? internal::kListedOperators[code] : internal::InfoOfAdded(op);
}

// A new one, whose name is that of no other: lower case letters, digits and underscores, 200 at most. Counts of operands are
// taken from their names (in `info` they are 0 or the same), at most kMostInputs and 1 to kMostOutputs, no two of one list alike, with the marks that
// operator_list.inc explains. What its pointers point to is copied. The same
// once more is the same operator. Throws kInvalidArgument, kResourceExhausted beyond kMaxOpCodes. Operators are never
// taken out. Any thread, static initialisers too.
OpCode AddOperator(const OperatorInfo& info);

// How many there are now, and the one of that name; none: there is none.
int OperatorCount();  // codes from 0, those of the list first
std::optional<OpCode> FindOperator(std::string_view name);
// Name of the operand at `position` of a comma-separated list, without its marks.
std::string OperandName(const char* operands, int position);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_OP_CODE_H_
