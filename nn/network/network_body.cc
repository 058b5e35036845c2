#include "tidepool/nn/network/network_body.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::nn {

NDArray InComputeType(const NDArray& parameter, const ParameterSpec& spec,
                      const std::optional<DType>& compute_type) {
  if (!compute_type.has_value() || !spec.is_trained || parameter.dtype() == *compute_type)
    return parameter;
  return Cast(parameter, *compute_type);
}

namespace {

[[noreturn]] void RefuseType(const Layer& layer, size_t input, DType found,
                             const std::string& expected) {
  ThrowInvalidArgument(absl::StrCat("layer [", layer.Describe(), "]: input ", input, " is ",
                                    DTypeName(found), ", expected ", expected));
}

// Of the input, where the layer takes `types`, and the first one is of type `first`.
void CheckType(const Layer& layer, InputTypes types, size_t input, DType type, DType first) {
  if (types == InputTypes::kFloats && !IsFloating(type)) RefuseType(layer, input, type, "floats");
  if (types == InputTypes::kIntegers && IsFloating(type))
    RefuseType(layer, input, type, "integers");
  if (types == InputTypes::kAlike && type != first)
    RefuseType(layer, input, type, absl::StrCat(DTypeName(first), " as input 0"));
}

}  // namespace

std::optional<DType> CheckTypes(const Layer& layer, absl::Span<const std::optional<DType>> inputs) {
  const InputTypes types = layer.TakenTypes();
  bool are_known = true, are_floats = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    are_known = are_known && inputs[i].has_value();
    are_floats = are_floats && inputs[i].has_value() && IsFloating(*inputs[i]);
    if (inputs[i].has_value())
      CheckType(layer, types, i, *inputs[i], inputs[0].value_or(*inputs[i]));
  }
  // What any layer makes of floats is floats, which a network looks at.
  if (types == InputTypes::kFloats || types == InputTypes::kIntegers || are_floats)
    return DType::kFloat32;
  if (types == InputTypes::kAlike && are_known) return inputs[0];
  return std::nullopt;
}

void CheckTypes(const Layer& layer, absl::Span<const NDArray> inputs) {
  const InputTypes types = layer.TakenTypes();
  if (types == InputTypes::kAny) return;
  for (size_t i = 0; i < inputs.size(); ++i)
    CheckType(layer, types, i, inputs[i].dtype(), inputs[0].dtype());
}

void CheckOutput(const NDArray& output, int64_t batch, const char* who, const std::string& name,
                 const Layer& layer) {
  if (output.is_defined() && output.rank() >= 1 && output.dim(0) == batch) return;
  ThrowInvalidArgument(
      absl::StrCat(who, name, "]: layer [", layer.Describe(), "]: its Forward() returned ",
                   output.is_defined() ? output.shape().ToString() : "an undefined array",
                   ", expected [", batch, ", ...] for a batch of ", batch));
}

void DropMaskOfOthers(NDArray& mask, const NDArray& output) {
  if (!mask.is_defined()) return;
  if (output.rank() < 2 || output.dim(0) != mask.dim(0) || output.dim(1) != mask.dim(1))
    mask = NDArray();
}

}  // namespace tidepool::nn
