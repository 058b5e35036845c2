#include "tidepool/ndarray/operand_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_chain.h"
#include "tidepool/ndarray/kernel/operand_marks.h"
#include "tidepool/ndarray/kernel/shape_rules.h"

namespace tidepool {
namespace {

bool SameView(const NDArray& a, const NDArray& b) {
  return a.raw_data() == b.raw_data() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.strides(), a.strides() + a.rank(), b.strides());
}

}  // namespace

void ThrowNullOutput(OpCode op, size_t inputs, absl::Span<NDArray* const> outputs,
                     AttributesRef attributes) {
  const OperatorInfo& info = Info(op);
  CheckCall(info, inputs, outputs.size(), attributes);
  const auto null = std::find(outputs.begin(), outputs.end(), nullptr);
  internal::ThrowNull(info, info.outputs, static_cast<int>(null - outputs.begin()));
}

void CheckMayBeAbsent(OpCode op, const OperatorInfo& info, AttributesRef attributes, int input) {
  if (!info.input_mark(input).optional) internal::ThrowNull(info, info.inputs, input);
  if (op != OpCode::kElementwiseChain) return;
  // A chain has those that its steps say.
  const auto& chain = *static_cast<const ElementwiseChainAttributes*>(attributes.data());
  for (int i = 0; i < std::min(chain.count, kMaxChainSteps); ++i) {
    if (chain.steps[i].operand == input) internal::ThrowNull(info, info.inputs, input);
  }
}

namespace internal {

void ThrowWrongAttributes(const OperatorInfo& info, AttributesRef attributes) {
  ThrowInvalidArgument(absl::StrCat("Op [", info.name, "]: found attributes ",
                                    attributes.type_name(), ", expected ", info.attributes.name()));
}

void ThrowWrongCounts(const OperatorInfo& info, size_t inputs, size_t outputs) {
  ThrowInvalidArgument(absl::StrCat("Op [", info.name, "]: found ", inputs, " inputs and ", outputs,
                                    " outputs, expected ", static_cast<int>(info.input_count), " (",
                                    info.inputs, ") and ", static_cast<int>(info.output_count),
                                    " (", info.outputs, ")"));
}

void ThrowNull(const OperatorInfo& info, const char* names, int index) {
  ThrowInvalidArgument(absl::StrCat("Op [", info.name, "]: ", OperandName(names, index),
                                    " is null, expected an array"));
}

namespace {

bool HasTypeOf(const OperandMark& mark, DType key, const TensorRef& operand) {
  if (!operand.present) return true;  // was looked at before
  return mark.type == 0 ? operand.dtype == key : Contains(TypesOf(mark.type, key), operand.dtype);
}

[[noreturn]] void ThrowWrongType(const OperatorInfo& info, const OperandMark& mark, DType key,
                                 const TensorRef& operand, const std::string& name) {
  const DTypeSet expected = TypesOf(mark.type, key);
  std::string list;
  for (int type = 0; type < kDTypes; ++type) {
    if (!Contains(expected, static_cast<DType>(type))) continue;
    absl::StrAppend(&list, list.empty() ? "" : " or ", DTypeName(static_cast<DType>(type)));
  }
  ThrowInvalidArgument(
      absl::StrCat("Op [", info.name, "]: ", name, " is ", DTypeName(operand.dtype), ", expected ",
                   list, ", as ", OperandName(info.key_is_input() ? info.inputs : info.outputs, 0),
                   " is ", DTypeName(key)));
}

}  // namespace

// In each call of an operator with marks: what is nearly always right is a comparison or two for each operand.
void CheckTypesByMarks(const OperatorInfo& info, DType key, const CallOperands& operands) {
  const TensorRef* const inputs = operands.inputs().data();
  for (int i = 0; i < info.input_count; ++i) {
    if (HasTypeOf(info.input_mark(i), key, inputs[i])) continue;
    ThrowWrongType(info, info.input_mark(i), key, inputs[i], OperandName(info.inputs, i));
  }
  const TensorRef* const outputs = operands.outputs().data();
  for (int o = 0; o < info.output_count; ++o) {
    if (HasTypeOf(info.output_mark(o), key, outputs[o])) continue;
    ThrowWrongType(info, info.output_mark(o), key, outputs[o], OperandName(info.outputs, o));
  }
}

void CheckShapesByRule(OpCode op, absl::Span<const NDArray* const> inputs,
                       absl::Span<NDArray* const> outputs, AttributesRef attributes) {
  const OperatorInfo& info = Info(op);
  const bool needs_first = info.shape == ShapeRule::kLikeFirst || info.shape == ShapeRule::kReduced;
  if (info.shape == ShapeRule::kOwnShape || (needs_first && inputs[0] == nullptr)) return;
  const Shape* shapes[kMostInputs] = {};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != nullptr) shapes[i] = &inputs[i]->shape();
  }
  const Shape expected = *ShapeByRule(op, absl::MakeConstSpan(shapes, inputs.size()), attributes);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o]->shape() == expected) continue;
    ThrowInvalidArgument(absl::StrCat(
        "Op [", info.name, "]: output ", OperandName(info.outputs, static_cast<int>(o)),
        " is of shape ", outputs[o]->shape().ToString(), ", expected ", expected.ToString(),
        ", by the rule of its row"));
  }
}

void CheckSharedMemory(OpCode op, AttributesRef attributes, const NDArray& input, int input_index,
                       const NDArray& output, int output_index) {
  const bool may_be_same =
      MayBeWrittenOver(op, attributes, input_index, output_index, output.device());
  if (may_be_same && SameView(input, output)) return;
  if (!ViewsOverlap(input, output)) return;
  const OperatorInfo& info = Info(op);
  ThrowInvalidArgument(absl::StrCat(
      "Op [", info.name, "]: output ", OperandName(info.outputs, output_index), " overlaps input ",
      OperandName(info.inputs, input_index),
      may_be_same ? " without being the same view" : "; the operator is not done in place"));
}

}  // namespace internal

bool MayBeWrittenOver(OpCode op, AttributesRef attributes, int input, int output, Device device) {
  if (Info(op).in_place()) return true;
  if (device != Host() || output != 0) return false;
  switch (op) {
    case OpCode::kMaxPool2dGrad: {
      if (input != 0 || !attributes.Is(AttributesType::Of<Pool2dAttributes>())) return false;
      const auto& a = *static_cast<const Pool2dAttributes*>(attributes.data());
      return a.kernel_height == a.stride_height && a.kernel_width == a.stride_width &&
             a.pad_top + a.pad_bottom + a.pad_left + a.pad_right == 0;
    }
    case OpCode::kBatchNormGrad:
    case OpCode::kLayerNormGrad:
    case OpCode::kGroupNormGrad:
      return input == 0 || input == 4;
    case OpCode::kRmsNormGrad:
      return input == 0 || input == 3;
    default:
      return false;
  }
}

void CheckApart(const OperatorInfo& info, const NDArray& one, int one_index, const NDArray& other,
                int other_index) {
  if (one.device() != other.device() && one.NumElements() > 0 && other.NumElements() > 0) {
    ThrowInvalidArgument(
        absl::StrCat("Op [", info.name, "]: output ", OperandName(info.outputs, other_index),
                     " is on ", DeviceName(other.device()), ", expected ", DeviceName(one.device()),
                     ", where ", OperandName(info.outputs, one_index), " is"));
  }
  if (!ViewsOverlap(one, other)) return;
  ThrowInvalidArgument(absl::StrCat("Op [", info.name, "]: outputs ",
                                    OperandName(info.outputs, one_index), " and ",
                                    OperandName(info.outputs, other_index), " overlap"));
}

bool MustBeOnOneDevice(const NDArray& input, absl::Span<NDArray* const> outputs) {
  if (input.NumElements() == 0) return false;
  for (const NDArray* output : outputs) {
    if (output->NumElements() > 0) return true;
  }
  return false;
}

void CheckNoRepeats(OpCode op, const NDArray& output, int index) {
  if (output.NumElements() == 0) return;
  for (int i = 0; i < output.rank(); ++i) {
    if (output.strides()[i] != 0 || output.dim(i) <= 1) continue;
    ThrowInvalidArgument(
        absl::StrCat("Op [", Info(op).name, "]: output ", OperandName(Info(op).outputs, index),
                     " of shape ", output.shape().ToString(), " repeats its elements along axis ",
                     i, " (BroadcastTo); Dup() makes an array of its own"));
  }
  if (!MayRepeat(output)) return;
  ThrowInvalidArgument(
      absl::StrCat("Op [", Info(op).name, "]: output ", OperandName(Info(op).outputs, index),
                   " of shape ", output.shape().ToString(), " with strides [",
                   absl::StrJoin(absl::MakeConstSpan(output.strides(), output.rank()), ", "),
                   "] may have two indices of one element; Dup() makes an array of its own"));
}

}  // namespace tidepool
