// Elementwise arithmetic with NumPy's broadcasting. The plain forms allocate the result in the
// current place; the ...Into forms write to an array of the right shape and type, which may be the
// very same view as an operand, and allocate nothing but copies of operands of another type.
//
// Types: numbers. Operands of different types promote (PromoteTypes of dtype.h): those that have
// another type are copied by Cast. The result of an ...Into form must have the promoted type; where
// both are float types the operands are cast to the result's instead.
//
// Errors: kInvalidArgument naming operator, operands, shapes and types; two bool operands;
// kFailedPrecondition for stale operands. Integer division by zero and negative powers of integers
// are kInvalidArgument; floats follow IEEE 754, integers wrap around.
//
// Cost: one pass over the operands and the result, shared out between threads where it is long. Any thread may call, and
// arrays that are only read may be shared.
//
// See also unary.h, activation.h, comparison.h and bitwise.h.
#ifndef TIDEPOOL_NDARRAY_OPS_ELEMENTWISE_H_
#define TIDEPOOL_NDARRAY_OPS_ELEMENTWISE_H_

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/scalar.h"

namespace tidepool {

// Of each pair of elements; and the same into z.
NDArray Add(const NDArray& x, const NDArray& y);
NDArray Subtract(const NDArray& x, const NDArray& y);
NDArray Multiply(const NDArray& x, const NDArray& y);
NDArray Divide(const NDArray& x, const NDArray& y);  // of integers: truncated towards 0
void AddInto(const NDArray& x, const NDArray& y, NDArray& z);
void SubtractInto(const NDArray& x, const NDArray& y, NDArray& z);
void MultiplyInto(const NDArray& x, const NDArray& y, NDArray& z);
void DivideInto(const NDArray& x, const NDArray& y, NDArray& z);

// The larger and the smaller of each pair; NaN where either is NaN. Of 0 and -0 either.
NDArray Maximum(const NDArray& x, const NDArray& y);
NDArray Minimum(const NDArray& x, const NDArray& y);

// x to the power of y: C's pow; of integers exact, modulo 2^bits.
NDArray Power(const NDArray& x, const NDArray& y);
// x - floor(x / y) * y: of the sign of y, as NumPy's mod, a 0 too (PyTorch's is of the sign of x then). Gradients of this and
// FMod take the whole quotient for a constant.
NDArray Remainder(const NDArray& x, const NDArray& y);
// C's fmod, and % of integers: of the sign of x, a 0 too.
NDArray FMod(const NDArray& x, const NDArray& y);
// The whole quotient that Remainder belongs to, rounded down: of integers too, where Divide truncates. x / 0 is as Divide has it.
NDArray FloorDivide(const NDArray& x, const NDArray& y);

// These, into z.
void MaximumInto(const NDArray& x, const NDArray& y, NDArray& z);
void MinimumInto(const NDArray& x, const NDArray& y, NDArray& z);
void PowerInto(const NDArray& x, const NDArray& y, NDArray& z);
void RemainderInto(const NDArray& x, const NDArray& y, NDArray& z);
void FModInto(const NDArray& x, const NDArray& y, NDArray& z);
void FloorDivideInto(const NDArray& x, const NDArray& y, NDArray& z);

// Functions of two real numbers: integers and bool become floats as unary.h says.
NDArray Atan2(const NDArray& y, const NDArray& x);  // the angle of the point (x, y), from -pi to pi
NDArray Hypot(const NDArray& x, const NDArray& y);  // sqrt(x^2 + y^2) without overflow
NDArray CopySign(const NDArray& x, const NDArray& y);   // |x| with the sign of y, of -0 too
NDArray Heaviside(const NDArray& x, const NDArray& y);  // 0 below 0, 1 above, y at 0; NaN of NaN
NDArray LogAddExp(const NDArray& x, const NDArray& y);  // log(exp(x) + exp(y)) without overflow
void Atan2Into(const NDArray& y, const NDArray& x, NDArray& z);
void HypotInto(const NDArray& x, const NDArray& y, NDArray& z);
void CopySignInto(const NDArray& x, const NDArray& y, NDArray& z);
void HeavisideInto(const NDArray& x, const NDArray& y, NDArray& z);
void LogAddExpInto(const NDArray& x, const NDArray& y, NDArray& z);
NDArray LogAddExp2(const NDArray& x, const NDArray& y);  // log2(2^x + 2^y) without overflow
void LogAddExp2Into(const NDArray& x, const NDArray& y, NDArray& z);
// x > 0 ? x : slope * x, with a slope for each element, or for each of the last axis, as it broadcasts (PyTorch's prelu).
NDArray ParametricRelu(const NDArray& x, const NDArray& slope);
void ParametricReluInto(const NDArray& x, const NDArray& slope, NDArray& z);
// As Maximum and Minimum, but the other one where one is NaN.
NDArray FMax(const NDArray& x, const NDArray& y);
NDArray FMin(const NDArray& x, const NDArray& y);
void FMaxInto(const NDArray& x, const NDArray& y, NDArray& z);
void FMinInto(const NDArray& x, const NDArray& y, NDArray& z);

// With a number, which becomes an element of the array's type first (scalar.h). Of integer arrays:
// sums, differences and products with C++ integers, and with whole doubles that an i64 holds, are exact modulo 2^bits; with
// other doubles (fractions, 1e300) they are computed in double and truncated as ConvertElement of dtype.h does. Everything
// else takes only numbers that the type holds, else kInvalidArgument. Of float arrays the
// result is that of the array form, to the bit. Cost: as the array form, without an operand; quotients by numbers
// that are no power of two, and what no double holds, take an element of scratch.
NDArray Add(const NDArray& x, const Scalar& y);
NDArray Subtract(const NDArray& x, const Scalar& y);
NDArray Subtract(const Scalar& x, const NDArray& y);
NDArray Multiply(const NDArray& x, const Scalar& y);
NDArray Divide(const NDArray& x, const Scalar& y);
NDArray Divide(const Scalar& x, const NDArray& y);
void AddInto(const NDArray& x, const Scalar& y, NDArray& z);
void SubtractInto(const NDArray& x, const Scalar& y, NDArray& z);
void MultiplyInto(const NDArray& x, const Scalar& y, NDArray& z);
void DivideInto(const NDArray& x, const Scalar& y, NDArray& z);
NDArray Maximum(const NDArray& x, const Scalar& y);
NDArray Minimum(const NDArray& x, const Scalar& y);
NDArray Power(const NDArray& x, const Scalar& y);
NDArray Power(const Scalar& x, const NDArray& y);
NDArray Remainder(const NDArray& x, const Scalar& y);
NDArray Remainder(const Scalar& x, const NDArray& y);
NDArray FMod(const NDArray& x, const Scalar& y);
NDArray FMod(const Scalar& x, const NDArray& y);
NDArray FloorDivide(const NDArray& x, const Scalar& y);
NDArray FloorDivide(const Scalar& x, const NDArray& y);

// scale * x + shift. Of integers: exact modulo 2^bits when both are whole numbers that an i64 holds; otherwise computed in
// double, in which integers beyond 2^53 are rounded, and truncated as ConvertElement of dtype.h does. Of floats scale and
// shift become numbers of the type (float for 16 bits), and the result is rounded once.
NDArray ScaleShift(const NDArray& x, double scale, double shift);
void ScaleShiftInto(const NDArray& x, double scale, double shift, NDArray& z);

// Copies values into z, of x's shape, converting the type as ConvertElement of dtype.h does. Of any views that do not
// overlap.
void CopyInto(const NDArray& x, NDArray& z);
// `x` itself when it has the type; else a dense copy in the current place.
NDArray Cast(const NDArray& x, DType dtype);

// Add, Subtract, Multiply and Divide.
inline NDArray operator+(const NDArray& x, const NDArray& y) { return Add(x, y); }
inline NDArray operator-(const NDArray& x, const NDArray& y) { return Subtract(x, y); }
inline NDArray operator*(const NDArray& x, const NDArray& y) { return Multiply(x, y); }
inline NDArray operator/(const NDArray& x, const NDArray& y) { return Divide(x, y); }
inline NDArray operator+(const NDArray& x, const Scalar& y) { return Add(x, y); }
inline NDArray operator-(const NDArray& x, const Scalar& y) { return Subtract(x, y); }
inline NDArray operator*(const NDArray& x, const Scalar& y) { return Multiply(x, y); }
inline NDArray operator/(const NDArray& x, const Scalar& y) { return Divide(x, y); }
inline NDArray operator+(const Scalar& x, const NDArray& y) { return Add(y, x); }
inline NDArray operator-(const Scalar& x, const NDArray& y) { return Subtract(x, y); }
inline NDArray operator*(const Scalar& x, const NDArray& y) { return Multiply(y, x); }
inline NDArray operator/(const Scalar& x, const NDArray& y) { return Divide(x, y); }

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_ELEMENTWISE_H_
