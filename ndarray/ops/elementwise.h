// Elementwise arithmetic with NumPy's broadcasting. The plain forms allocate the result in the
// current place; the ...Into forms write to an array of the right shape and type, which may be the
// very same view as an operand, and allocate nothing.
//
// Errors: kInvalidArgument naming operator, operands, shapes and types; kFailedPrecondition for
// stale operands. Integer division by zero is kInvalidArgument; floats follow IEEE 754.
#ifndef TIDEPOOL_NDARRAY_OPS_ELEMENTWISE_H_
#define TIDEPOOL_NDARRAY_OPS_ELEMENTWISE_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

NDArray Add(const NDArray& x, const NDArray& y);
NDArray Subtract(const NDArray& x, const NDArray& y);
NDArray Multiply(const NDArray& x, const NDArray& y);
NDArray Divide(const NDArray& x, const NDArray& y);
void AddInto(const NDArray& x, const NDArray& y, NDArray& z);
void SubtractInto(const NDArray& x, const NDArray& y, NDArray& z);
void MultiplyInto(const NDArray& x, const NDArray& y, NDArray& z);
void DivideInto(const NDArray& x, const NDArray& y, NDArray& z);

// scale * x + shift.
NDArray ScaleShift(const NDArray& x, double scale, double shift);
void ScaleShiftInto(const NDArray& x, double scale, double shift, NDArray& z);

NDArray Relu(const NDArray& x);
void ReluInto(const NDArray& x, NDArray& z);
// dx = z > 0 ? dz : 0, where z = Relu(x). dx may be dz.
void ReluGradInto(const NDArray& z, const NDArray& dz, NDArray& dx);

// Copies values, converting the type as ConvertElement of dtype.h does.
void CopyInto(const NDArray& x, NDArray& z);
// `x` itself when it has the type; else a dense copy in the current place.
NDArray Cast(const NDArray& x, DType dtype);
void FillInto(double value, NDArray& z);

inline NDArray operator+(const NDArray& x, const NDArray& y) { return Add(x, y); }
inline NDArray operator-(const NDArray& x, const NDArray& y) { return Subtract(x, y); }
inline NDArray operator*(const NDArray& x, const NDArray& y) { return Multiply(x, y); }
inline NDArray operator/(const NDArray& x, const NDArray& y) { return Divide(x, y); }
inline NDArray operator*(const NDArray& x, double scale) { return ScaleShift(x, scale, 0); }
inline NDArray operator+(const NDArray& x, double shift) { return ScaleShift(x, 1, shift); }

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_ELEMENTWISE_H_
