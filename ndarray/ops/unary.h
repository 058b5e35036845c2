// Functions of one array, element by element. The plain forms allocate the result in the current
// place; the ...Into forms write to an array of the same shape, which may be the very same view as
// the operand, and allocate nothing unless they have to cast the operand.
//
// Types: Negate, Abs, Sign, Square and Clip keep the type of any number (integers wrap around). The
// others are functions of real numbers: integers and bool are cast first, those of 32 and 64 bits
// to f64, the smaller ones to f32. Where that type and the result of an ...Into form are different
// float types the operand is cast to the result's.
//
// Values: special values as in IEEE 754 and C (log(-1) is NaN, log(0) -infinity). f32 within 2 units
// in the last place on the CPU backend; docs/performance_kernels.md has the measured errors.
//
// Errors: kInvalidArgument naming operator, operands, shapes and types; kFailedPrecondition for
// stale operands.
#ifndef TIDEPOOL_NDARRAY_OPS_UNARY_H_
#define TIDEPOOL_NDARRAY_OPS_UNARY_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// -x, |x|, its sign and x * x; and the same into z.
NDArray Negate(const NDArray& x);
NDArray Abs(const NDArray& x);
NDArray Sign(const NDArray& x);  // -1, 0 or 1; NaN of NaN
NDArray Square(const NDArray& x);
void NegateInto(const NDArray& x, NDArray& z);
void AbsInto(const NDArray& x, NDArray& z);
void SignInto(const NDArray& x, NDArray& z);
void SquareInto(const NDArray& x, NDArray& z);

// min(max(x, low), high); NaN stays NaN. Infinite bounds leave a side open. Throws kInvalidArgument
// unless low <= high, and for bounds of integer arrays that are not whole.
NDArray Clip(const NDArray& x, double low, double high);
void ClipInto(const NDArray& x, double low, double high, NDArray& z);

// Functions of a real number, under their names in C where they are C's. Expm1 is exp(x) - 1 and
// Log1p log(1 + x), exact near 0 too.
NDArray Sqrt(const NDArray& x);
NDArray Rsqrt(const NDArray& x);  // 1 / sqrt(x)
NDArray Cbrt(const NDArray& x);
NDArray Reciprocal(const NDArray& x);
NDArray Exp(const NDArray& x);
NDArray Exp2(const NDArray& x);
NDArray Expm1(const NDArray& x);
NDArray Log(const NDArray& x);
NDArray Log2(const NDArray& x);
NDArray Log10(const NDArray& x);
NDArray Log1p(const NDArray& x);
NDArray Sin(const NDArray& x);
NDArray Cos(const NDArray& x);
NDArray Tan(const NDArray& x);  // angles are in radians
NDArray Asin(const NDArray& x);
NDArray Acos(const NDArray& x);
NDArray Atan(const NDArray& x);
NDArray Sinh(const NDArray& x);
NDArray Cosh(const NDArray& x);
NDArray Tanh(const NDArray& x);
NDArray Asinh(const NDArray& x);
NDArray Acosh(const NDArray& x);
NDArray Atanh(const NDArray& x);
NDArray Sigmoid(const NDArray& x);  // 1 / (1 + exp(-x))
NDArray Erf(const NDArray& x);
NDArray Floor(const NDArray& x);
NDArray Ceil(const NDArray& x);
NDArray Round(const NDArray& x);     // halves to even
NDArray Trunc(const NDArray& x);     // towards 0
NDArray Softplus(const NDArray& x);  // log(1 + exp(x)), without overflow

// The same into z.
void SqrtInto(const NDArray& x, NDArray& z);
void RsqrtInto(const NDArray& x, NDArray& z);
void ReciprocalInto(const NDArray& x, NDArray& z);
void ExpInto(const NDArray& x, NDArray& z);
void Expm1Into(const NDArray& x, NDArray& z);
void LogInto(const NDArray& x, NDArray& z);
void Log1pInto(const NDArray& x, NDArray& z);
void SinInto(const NDArray& x, NDArray& z);
void CosInto(const NDArray& x, NDArray& z);
void TanhInto(const NDArray& x, NDArray& z);
void SigmoidInto(const NDArray& x, NDArray& z);
void ErfInto(const NDArray& x, NDArray& z);
void FloorInto(const NDArray& x, NDArray& z);
void CeilInto(const NDArray& x, NDArray& z);
void RoundInto(const NDArray& x, NDArray& z);
void SoftplusInto(const NDArray& x, NDArray& z);
void TanInto(const NDArray& x, NDArray& z);
void AsinInto(const NDArray& x, NDArray& z);
void AcosInto(const NDArray& x, NDArray& z);
void AtanInto(const NDArray& x, NDArray& z);
void SinhInto(const NDArray& x, NDArray& z);
void CoshInto(const NDArray& x, NDArray& z);
void AsinhInto(const NDArray& x, NDArray& z);
void AcoshInto(const NDArray& x, NDArray& z);
void AtanhInto(const NDArray& x, NDArray& z);
void Log2Into(const NDArray& x, NDArray& z);
void Log10Into(const NDArray& x, NDArray& z);
void Exp2Into(const NDArray& x, NDArray& z);
void CbrtInto(const NDArray& x, NDArray& z);
void TruncInto(const NDArray& x, NDArray& z);

// Negate.
inline NDArray operator-(const NDArray& x) { return Negate(x); }

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_UNARY_H_
