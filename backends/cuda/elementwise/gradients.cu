// Activations with parameters, and gradients of activations: from the output (Z) or the input (X) and the gradient of the
// output.
#include "tidepool/backends/cuda/elementwise/parameters.h"
#include "tidepool/backends/cuda/elementwise/register.h"

namespace tidepool::cuda {
namespace {

using namespace operator_list;  // NOLINT: the rows' words

const bool registered = [] {
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddFunctionOfTwo<Name##Formula, types>(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/function_gradients.inc"
#undef TIDEPOOL_OPERATOR
  AddFunction<LeakyReluFunction, kFloats>(OpCode::kLeakyRelu);
  AddFunction<EluFunction, kFloats>(OpCode::kElu);
  AddFunction<GeluFunction, kFloats>(OpCode::kGelu);
  AddFunctionOfTwo<AlphaFunction<LeakyReluGradFormula>, kFloats>(OpCode::kLeakyReluGrad);
  AddFunctionOfTwo<AlphaFunction<EluGradFormula>, kFloats>(OpCode::kEluGrad);
  AddFunctionOfTwo<GeluFunctions<GeluErfGradFormula, GeluTanhGradFormula>, kFloats>(
      OpCode::kGeluGrad);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
