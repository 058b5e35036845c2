#include "tidepool/ndarray/ops/activation.h"

#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/ops/pointwise.h"

namespace tidepool {
namespace {

DType RealTypeOf(OpCode op, const NDArray& x) {
  CheckOperands(op, {&x});
  return RealType(x.dtype());
}

GeluAttributes AttributesOf(GeluForm form) { return {form == GeluForm::kTanh}; }
AlphaAttributes AttributesOf(double alpha) { return {alpha}; }

}  // namespace

// Gradients without a parameter; functions and gradients with one. Functions without one: unary.cc.
#define TIDEPOOL_ACTIVATION_OF(Name, Parameter)                                        \
  NDArray Name(const NDArray& x, Parameter parameter) {                                \
    const auto attributes = AttributesOf(parameter);                                   \
    return Pointwise(OpCode::k##Name, x, RealTypeOf(OpCode::k##Name, x), &attributes); \
  }                                                                                    \
  void Name##Into(const NDArray& x, Parameter parameter, NDArray& z) {                 \
    const auto attributes = AttributesOf(parameter);                                   \
    PointwiseInto(OpCode::k##Name, x, RealTypeOf(OpCode::k##Name, x), z, &attributes); \
  }
#define TIDEPOOL_OPERATOR(Name, ...)                                                             \
  NDArray Name(const NDArray& x, const NDArray& dz) { return Gradient(OpCode::k##Name, x, dz); } \
  void Name##Into(const NDArray& x, const NDArray& dz, NDArray& dx) {                            \
    GradientInto(OpCode::k##Name, x, dz, dx);                                                    \
  }
#define TIDEPOOL_GRADIENT_OF(Name, Parameter)                                              \
  NDArray Name(const NDArray& x, const NDArray& dz, Parameter parameter) {                 \
    const auto attributes = AttributesOf(parameter);                                       \
    return Gradient(OpCode::k##Name, x, dz, &attributes);                                  \
  }                                                                                        \
  void Name##Into(const NDArray& x, const NDArray& dz, Parameter parameter, NDArray& dx) { \
    const auto attributes = AttributesOf(parameter);                                       \
    GradientInto(OpCode::k##Name, x, dz, dx, &attributes);                                 \
  }
#include "tidepool/ndarray/kernel/operators/function_gradients.inc"
TIDEPOOL_ACTIVATION_OF(LeakyRelu, double)
TIDEPOOL_ACTIVATION_OF(Elu, double)
TIDEPOOL_ACTIVATION_OF(Gelu, GeluForm)
TIDEPOOL_GRADIENT_OF(LeakyReluGrad, double)
TIDEPOOL_GRADIENT_OF(EluGrad, double)
TIDEPOOL_GRADIENT_OF(GeluGrad, GeluForm)
#undef TIDEPOOL_ACTIVATION_OF
#undef TIDEPOOL_OPERATOR
#undef TIDEPOOL_GRADIENT_OF

}  // namespace tidepool
