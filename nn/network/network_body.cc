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
