#include "tidepool/nn/network/network_body.h"

#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::nn {

NDArray InComputeType(const NDArray& parameter, const ParameterSpec& spec, const std::optional<DType>& compute_type) {
  if (!compute_type.has_value() || !spec.is_trained || parameter.dtype() == *compute_type) return parameter;
  return Cast(parameter, *compute_type);
}

void DropMaskOfOthers(NDArray& mask, const NDArray& output) {
  if (!mask.is_defined()) return;
  if (output.rank() < 2 || output.dim(0) != mask.dim(0) || output.dim(1) != mask.dim(1)) mask = NDArray();
}

}  // namespace tidepool::nn
