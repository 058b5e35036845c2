#include "tidepool/nn/layers/layer_cost.h"

#include <algorithm>

namespace tidepool::nn {

double ElementsOf(const Shape& shape) {
  double elements = 1;
  for (const int64_t size : shape.span()) elements *= static_cast<double>(size);
  return elements;
}

double PlacesOf(const Shape& shape) {
  if (shape.rank() == 0) return 1;
  return ElementsOf(shape) / static_cast<double>(std::max<int64_t>(1, shape[shape.rank() - 1]));
}

double ElementsOf(absl::Span<const ParameterSpec> parameters) {
  double elements = 0;
  for (const ParameterSpec& parameter : parameters) elements += ElementsOf(parameter.shape);
  return elements;
}

}  // namespace tidepool::nn
