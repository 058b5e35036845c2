// The operators that programs add to those of the list.
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/kernel/operand_marks.h"

namespace tidepool {
namespace {

struct Added {
  std::string name, inputs, outputs, gradient;
  OperatorInfo info;
};

// Never changed nor freed once they are there. Before any static initialiser.
constinit std::atomic<const Added*> table[kMaxOpCodes - kOpCodes] = {};
constinit std::atomic<int> count{kOpCodes};
constinit std::mutex adding;

constexpr size_t kMostNameBytes = 200;
constexpr DTypeSet kKnownTypes = (1 << kDTypes) - 1;
constexpr uint8_t kKnownFlags = operator_list::kInPlace | operator_list::kUpdates |
                                operator_list::kKeyIsInput | operator_list::kHeavy;

bool IsName(std::string_view name) {
  for (const char c : name) {
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_') return false;
  }
  return !name.empty();
}

bool IsOperandName(absl::string_view name) {
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0]));
}

bool IsTypeWord(absl::string_view word) {
  return !word.empty() && TypeMarkOf(std::string_view(word.data(), word.size())) != kNoTypeMark;
}

// What is wrong with a comma-separated list of operands, as operator_list.inc explains them; empty: nothing.
std::string ProblemOf(const char* operands) {
  if (*operands == 0) return "";
  std::set<absl::string_view> names;
  for (const absl::string_view operand : absl::StrSplit(operands, ',')) {
    const absl::string_view name = operand.substr(0, operand.find_first_of(":?"));
    absl::string_view marks = operand.substr(name.size());
    if (!absl::ConsumePrefix(&marks, "?")) absl::ConsumeSuffix(&marks, "?");
    if (!IsOperandName(name) ||
        (!marks.empty() && !(absl::ConsumePrefix(&marks, ":") && IsTypeWord(marks)))) {
      return absl::StrCat("found operand \"", operand,
                          "\", expected a letter or underscore, letters, digits and "
                          "underscores, and perhaps ? and the name of a type as :i64");
    }
    if (!names.insert(name).second)
      return absl::StrCat("found operand \"", name, "\" twice, expected once");
  }
  return "";
}

bool IsSame(const OperatorInfo& a, const OperatorInfo& b) {
  return std::strcmp(a.inputs, b.inputs) == 0 && std::strcmp(a.outputs, b.outputs) == 0 &&
         a.attributes == b.attributes && a.flags == b.flags && a.types == b.types &&
         a.shape == b.shape && std::strcmp(a.gradient, b.gradient) == 0 && a.cost == b.cost;
}

void Check(const OperatorInfo& info) {
  const auto refuse = [&](const std::string& what) {
    ThrowInvalidArgument(
        absl::StrCat("operator \"", info.name != nullptr ? info.name : "", "\": ", what));
  };
  if (info.name == nullptr) refuse("found null as its name, expected one");
  if (info.inputs == nullptr) refuse("found null as its inputs, expected names, or \"\" for none");
  if (info.outputs == nullptr) refuse("found null as its outputs, expected names");
  if (info.gradient == nullptr)
    refuse("found null as its gradient, expected operators' names, or kUnwritten");
  if (const size_t bytes = std::strlen(info.name); bytes > kMostNameBytes) {
    ThrowInvalidArgument(absl::StrCat("operator \"", std::string(info.name, kMostNameBytes),
                                      "...\": found a name of ", bytes, " bytes, expected at most ",
                                      kMostNameBytes));
  }
  if (!IsName(info.name)) {
    refuse("found that name, expected lower case letters, digits and underscores");
  }
  for (const char* const word :
       {operator_list::kNoGradient, operator_list::kComposed, operator_list::kUnwritten}) {
    if (std::strcmp(info.name, word) != 0) continue;
    refuse("found a word that rows say in place of a gradient, expected another name");
  }
  const int inputs = CountOperands(info.inputs), outputs = CountOperands(info.outputs);
  if (inputs > kMostInputs || outputs < 1 || outputs > kMostOutputs) {
    refuse(absl::StrCat("found ", inputs, " inputs and ", outputs, " outputs, expected at most ",
                        kMostInputs, " and 1 to ", kMostOutputs));
  }
  // A row may leave them to the names; what it says otherwise is a row for other operands.
  if ((info.input_count != 0 && info.input_count != inputs) ||
      (info.output_count != 0 && info.output_count != outputs)) {
    refuse(absl::StrCat("found input_count ", static_cast<int>(info.input_count),
                        " and output_count ", static_cast<int>(info.output_count),
                        ", expected 0, or as many as there are names: ", inputs, " and ", outputs));
  }
  for (const char* const operands : {info.inputs, info.outputs}) {
    const std::string problem = ProblemOf(operands);
    if (!problem.empty()) refuse(absl::StrCat(problem, " (in \"", operands, "\")"));
  }
  if ((info.flags & ~kKnownFlags) != 0) {
    refuse(absl::StrCat("found flags ", info.flags, ", expected at most ", kKnownFlags,
                        ": kInPlace, kUpdates, kKeyIsInput and kHeavy"));
  }
  if ((info.types & ~kKnownTypes) != 0) {
    refuse(
        absl::StrCat("found types ", info.types, ", expected bits of the ", kDTypes, " there are"));
  }
  if (info.types == 0) refuse("found no element types, expected those it is defined for");
  if (info.has_gradient_operators()) {
    for (const absl::string_view name : absl::StrSplit(info.gradient, ',')) {
      if (IsName(std::string_view(name.data(), name.size()))) continue;
      refuse(absl::StrCat("found gradient \"", info.gradient,
                          "\", expected names of operators, comma-separated, or "
                          "kNoGradient, kComposed or kUnwritten"));
    }
  }
  if (static_cast<int>(info.shape) > static_cast<int>(ShapeRule::kReduced)) {
    refuse(absl::StrCat("found shape rule ", static_cast<int>(info.shape),
                        ", expected one of ShapeRule"));
  }
  if ((info.shape == ShapeRule::kLikeFirst || info.shape == ShapeRule::kReduced ||
       info.cost.each_input != 0) &&
      inputs == 0) {
    refuse("its shape or cost is of the first input, and there is none");
  }
  for (const float cost : {info.cost.each_output, info.cost.each_input}) {
    if (std::isfinite(cost) && cost >= 0) continue;
    refuse(absl::StrCat("found a cost of ", cost,
                        " for each element, expected 0 or more operations, and a finite number"));
  }
  if (info.shape == ShapeRule::kReduced &&
      info.attributes != AttributesType::Of<ReduceAttributes>()) {
    refuse(absl::StrCat("found attributes ", info.attributes.name(), ", expected ",
                        AttributesType::Of<ReduceAttributes>().name(),
                        ", by which kReduced makes shapes"));
  }
  if (info.key_is_input() && inputs == 0) {
    refuse("kKeyIsInput names the first input, and there is none");
  }
  const OperatorInfo marked = WithOperands(info);
  for (int o = 0; o < outputs; ++o) {
    if (marked.output_mark(o).optional) {
      refuse(absl::StrCat("output ", OperandName(info.outputs, o),
                          " is optional, expected outputs that every call has"));
    }
  }
  const OperandMark& key = info.key_is_input() ? marked.input_mark(0) : marked.output_mark(0);
  if (key.optional || key.type != 0) {
    refuse(absl::StrCat("found marks behind ",
                        OperandName(info.key_is_input() ? info.inputs : info.outputs, 0),
                        ", whose type is the one that kernels are registered for, expected none"));
  }
}

}  // namespace

const OperatorInfo& internal::InfoOfAdded(OpCode op) {
  const int code = static_cast<int>(op);
  if (code >= OperatorCount()) {
    ThrowInvalidArgument(
        absl::StrCat("found operator ", code, ", expected 0 to ", OperatorCount() - 1));
  }
  return table[code - kOpCodes].load(std::memory_order_acquire)->info;
}

int OperatorCount() { return count.load(std::memory_order_acquire); }

std::optional<OpCode> FindOperator(std::string_view name) {
  const int codes = OperatorCount();
  for (int code = 0; code < codes; ++code) {
    if (name == Info(static_cast<OpCode>(code)).name) return static_cast<OpCode>(code);
  }
  return std::nullopt;
}

OpCode AddOperator(const OperatorInfo& info) {
  Check(info);
  std::lock_guard<std::mutex> lock(adding);
  if (const std::optional<OpCode> known = FindOperator(info.name)) {
    if (static_cast<int>(*known) >= kOpCodes && IsSame(Info(*known), info)) return *known;
    ThrowInvalidArgument(
        absl::StrCat("operator \"", info.name, "\": there is another one of that name"));
  }
  const int code = OperatorCount();
  if (code == kMaxOpCodes) {
    ThrowResourceExhausted(absl::StrCat("operator \"", info.name, "\": there are ", kMaxOpCodes,
                                        " already, which is all there may be"));
  }
  auto added =
      std::make_unique<Added>(Added{info.name, info.inputs, info.outputs, info.gradient, info});
  added->info.name = added->name.c_str();
  added->info.inputs = added->inputs.c_str();
  added->info.outputs = added->outputs.c_str();
  added->info.gradient = added->gradient.c_str();
  added->info = WithOperands(added->info);
  table[code - kOpCodes].store(added.release(), std::memory_order_release);
  count.store(code + 1, std::memory_order_release);
  return static_cast<OpCode>(code);
}

}  // namespace tidepool
