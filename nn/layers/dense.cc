#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/nn/layers/dense.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool::nn {
namespace {

NDArray Flatten(const NDArray& x) {
  if (x.rank() == 2) return x;
  const int64_t batch = x.dim(0);
  return x.Reshape({batch, batch == 0 ? 0 : x.NumElements() / batch});
}

}  // namespace

std::string Dense::Describe() const {
  return absl::StrCat("dense ", units_, activation_ == Activation::kRelu ? " relu" : "");
}

Shape Dense::OutputShape(const Shape& input) const {
  if (units_ < 1 || input.NumElements() < 1) {
    ThrowInvalidArgument(absl::StrCat("layer [", Describe(), "]: input shape ", input.ToString(),
                                      "; expected at least one unit and one input"));
  }
  return {units_};
}

std::vector<ParameterSpec> Dense::Parameters(const Shape& input) const {
  const int64_t inputs = input.NumElements();
  // He et al. 2015 before a ReLU, Glorot and Bengio 2010 otherwise.
  const double bound = activation_ == Activation::kRelu
                           ? std::sqrt(6.0 / static_cast<double>(inputs))
                           : std::sqrt(6.0 / static_cast<double>(inputs + units_));
  return {{"weight", {units_, inputs}, bound}, {"bias", {units_}, 0}};
}

NDArray Dense::Forward(const LayerContext& context, const NDArray& input, LayerCache& cache) const {
  MatMulAttributes attributes;
  attributes.transpose_y = true;
  attributes.relu = activation_ == Activation::kRelu;
  attributes.y_is_constant = !context.training;
  NDArray output =
      MatMul(Flatten(input), context.parameters[0], attributes, &context.parameters[1]);
  if (context.training) {
    cache.input = input;
    if (attributes.relu && !relu_gradient_elsewhere_) cache.output = output;
  }
  return output;
}

NDArray Dense::Backward(const LayerContext& context, NDArray output_gradient, LayerCache& cache,
                        bool needs_input_gradient) const {
  if (cache.output.is_defined()) {
    ReluGradInto(cache.output, output_gradient, output_gradient);
    cache.output = NDArray();
  }
  MatMulAttributes of_weight;
  of_weight.transpose_x = true;
  MatMulInto(output_gradient, Flatten(cache.input), context.gradients[0], of_weight);
  const Shape input_shape = cache.input.shape();
  cache.Clear();
  SumToLastAxisInto(output_gradient, context.gradients[1]);
  if (!needs_input_gradient) return NDArray();
  return MatMul(output_gradient, context.parameters[0]).Reshape(input_shape);
}

bool Dense::ToFrozen(FrozenOp& op) const {
  op.kind = FrozenOp::Kind::kDense;
  op.relu = activation_ == Activation::kRelu;
  return true;
}

}  // namespace tidepool::nn
