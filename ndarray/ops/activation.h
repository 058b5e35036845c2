// Activation functions and their gradients, element by element; Sigmoid, Tanh and Softplus stand in
// unary.h, ParametricRelu in elementwise.h. The plain forms allocate the result in the current place; the ...Into forms write to an
// array of the same shape, which may be the very same view as an operand, and allocate nothing
// unless they have to cast the operand.
//
// Types: floats; integers are cast as unary.h says. Operands of gradients have one float type.
// Values: as the formulas give them in IEEE 754, so that Gelu and Swish of -infinity are NaN.
// Errors: kInvalidArgument naming operator, operands, shapes and types; kFailedPrecondition for
// stale operands.
#ifndef TIDEPOOL_NDARRAY_OPS_ACTIVATION_H_
#define TIDEPOOL_NDARRAY_OPS_ACTIVATION_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

enum class GeluForm {
  kErf,   // x / 2 * (1 + erf(x / sqrt(2)))
  kTanh,  // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
};

// f of each element, NaN of NaN; and the same into z.
NDArray Relu(const NDArray& x);                            // max(x, 0)
NDArray LeakyRelu(const NDArray& x, double alpha = 0.01);  // x > 0 ? x : alpha * x
NDArray Elu(const NDArray& x, double alpha = 1);           // x > 0 ? x : alpha * (exp(x) - 1)
NDArray Gelu(const NDArray& x, GeluForm form = GeluForm::kErf);
NDArray Swish(const NDArray& x);  // x * sigmoid(x)
NDArray Mish(const NDArray& x);   // x * tanh(log(1 + exp(x)))
void ReluInto(const NDArray& x, NDArray& z);
void MishInto(const NDArray& x, NDArray& z);
void LeakyReluInto(const NDArray& x, double alpha, NDArray& z);
void EluInto(const NDArray& x, double alpha, NDArray& z);
void GeluInto(const NDArray& x, GeluForm form, NDArray& z);
void SwishInto(const NDArray& x, NDArray& z);

// Gradients: dx of the loss for dz of the loss, from the output z = f(x) ...
NDArray ReluGrad(const NDArray& z, const NDArray& dz);     // z > 0 ? dz : 0
NDArray SigmoidGrad(const NDArray& z, const NDArray& dz);  // dz * z * (1 - z)
NDArray TanhGrad(const NDArray& z, const NDArray& dz);     // dz * (1 - z^2)
void ReluGradInto(const NDArray& z, const NDArray& dz, NDArray& dx);
void SigmoidGradInto(const NDArray& z, const NDArray& dz, NDArray& dx);
void TanhGradInto(const NDArray& z, const NDArray& dz, NDArray& dx);
// ... or from the input x.
NDArray LeakyReluGrad(const NDArray& x, const NDArray& dz, double alpha = 0.01);
NDArray EluGrad(const NDArray& x, const NDArray& dz, double alpha = 1);
NDArray GeluGrad(const NDArray& x, const NDArray& dz, GeluForm form = GeluForm::kErf);
NDArray SwishGrad(const NDArray& x, const NDArray& dz);
NDArray MishGrad(const NDArray& x, const NDArray& dz);
NDArray SoftplusGrad(const NDArray& x, const NDArray& dz);  // dz * sigmoid(x)
void LeakyReluGradInto(const NDArray& x, const NDArray& dz, double alpha, NDArray& dx);
void EluGradInto(const NDArray& x, const NDArray& dz, double alpha, NDArray& dx);
void GeluGradInto(const NDArray& x, const NDArray& dz, GeluForm form, NDArray& dx);
void SwishGradInto(const NDArray& x, const NDArray& dz, NDArray& dx);
void MishGradInto(const NDArray& x, const NDArray& dz, NDArray& dx);
void SoftplusGradInto(const NDArray& x, const NDArray& dz, NDArray& dx);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_ACTIVATION_H_
