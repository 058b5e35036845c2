// What a row says of its operands by their names and the marks behind them: of the list while it is compiled, of operators
// that programs add when they come.
//
//   "X,indices:index,bias?"        // X, what says which elements, and one that may be absent
#ifndef TIDEPOOL_NDARRAY_KERNEL_OPERAND_MARKS_H_
#define TIDEPOOL_NDARRAY_KERNEL_OPERAND_MARKS_H_

#include <cstdint>
#include <string_view>

#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/op_code.h"

namespace tidepool {

// How many names a comma-separated list has; more than 127 count as 127.
constexpr int8_t CountOperands(const char* names) {
  if (*names == 0) return 0;
  int8_t count = 1;
  for (; *names != 0; ++names) count += *names == ',' && count < INT8_MAX;
  return count;
}

// What ":word" says of an operand's type, by the type that the kernel is registered for.
inline constexpr std::string_view kTypeWords[] = {"", "any", "index", "total", "real", "statistic"};
inline constexpr uint8_t kFixedType =
    static_cast<uint8_t>(std::size(kTypeWords));  // and up: one type, ":i64"
inline constexpr uint8_t kTypeMarks = kFixedType + kDTypes;
inline constexpr uint8_t kNoTypeMark = 0xff;

// kNoTypeMark: there is no such word.
constexpr uint8_t TypeMarkOf(std::string_view word) {
  for (uint8_t mark = 0; mark < kFixedType; ++mark) {
    if (word == kTypeWords[mark]) return mark;
  }
  for (uint8_t type = 0; type < kDTypes; ++type) {
    if (word == DTypeName(static_cast<DType>(type))) return kFixedType + type;
  }
  return kNoTypeMark;
}

// The types that an operand with that mark may have.
constexpr DTypeSet TypesOf(uint8_t mark, DType key) {
  switch (mark) {
    case 0:
      return SetOf(key);
    case 1:
      return operator_list::kAllTypes;
    case 2:
      return SetOf(DType::kInt32) | SetOf(DType::kInt64);
    case 3:
      return SetOf(TotalType(key));
    case 4:
      return SetOf(IsFloating(key) ? key : DType::kFloat64);
    case 5:
      return SetOf(key == DType::kFloat64 ? key : DType::kFloat32);
    default:
      return SetOf(static_cast<DType>(mark - kFixedType));
  }
}

// Of a list that CountOperands finds at most `most` in; what comes behind is left out. Returns whether any has a mark.
constexpr bool ReadMarks(std::string_view names, int most, OperandMark* marks) {
  bool any = false;
  for (int i = 0; i < most && !names.empty(); ++i) {
    const size_t end = names.find(',');
    std::string_view operand = names.substr(0, end);
    names = end == names.npos ? std::string_view() : names.substr(end + 1);
    // "?" stands before or behind the type.
    const size_t question = operand.find('?'), colon = operand.find(':');
    marks[i].optional = question != operand.npos;
    std::string_view word = colon == operand.npos ? std::string_view() : operand.substr(colon + 1);
    if (!word.empty() && word.back() == '?') word.remove_suffix(1);
    marks[i].type = TypeMarkOf(word);
    any = any || marks[i].optional || marks[i].type != 0;
  }
  return any;
}

// `info` with what follows from its names of operands: counts and marks.
constexpr OperatorInfo WithOperands(OperatorInfo info) {
  info.input_count = CountOperands(info.inputs);
  info.output_count = CountOperands(info.outputs);
  const bool inputs = ReadMarks(info.inputs, kMostInputs, info.marks);
  const bool outputs = ReadMarks(info.outputs, kMostOutputs, info.marks + kMostInputs);
  info.has_marks = inputs || outputs;
  return info;
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_OPERAND_MARKS_H_
