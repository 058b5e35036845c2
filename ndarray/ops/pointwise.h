// What elementwise operators share: which type they compute in, and calls.
#ifndef TIDEPOOL_NDARRAY_OPS_POINTWISE_H_
#define TIDEPOOL_NDARRAY_OPS_POINTWISE_H_

#include <initializer_list>

#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Throws kInvalidArgument for bool: arithmetic needs numbers.
void CheckNumber(OpCode op, DType dtype);

// The type to compute in when the result, of type `natural` by itself, goes to `z`: that of `z`,
// which must be `natural` or, like it, a float type. Throws kInvalidArgument naming the types of
// `inputs` and `z`.
DType TypeForResult(OpCode op, std::initializer_list<const NDArray*> inputs, DType natural,
                    const NDArray& z);

// Functions of real numbers: floats give their own type, integers of 32 and 64 bits f64, smaller ones
// and bool f32.
DType RealType(DType dtype);

// What products of matrices of `dtype` are computed in: a float's own type, i64 of integers of 64 bits, i32 of others,
// which wrap to the same bits.
DType ProductType(DType dtype);

// Z = op(X), computed in the type `natural`, to which X is cast when it has another.
NDArray Pointwise(OpCode op, const NDArray& x, DType natural, AttributesRef attributes = {});
void PointwiseInto(OpCode op, const NDArray& x, DType natural, NDArray& z,
                   AttributesRef attributes = {});

// Z = op(X, Y) of numbers, broadcast, with the types that elementwise.h says.
NDArray Binary(OpCode op, const NDArray& x, const NDArray& y);
void BinaryInto(OpCode op, const NDArray& x, const NDArray& y, NDArray& z);

// `x` itself, or a copy of type `dtype` that belongs to no manager, for the length of a call.
NDArray CastScratch(const NDArray& x, DType dtype);

// `values` itself where it is the very same view as `from` or has no element in common with it; else a copy for
// the length of a call.
NDArray Apart(const NDArray& values, const NDArray& from);

// dX = op(X or Z, dZ): all of one shape and type.
NDArray Gradient(OpCode op, const NDArray& x, const NDArray& dz, AttributesRef attributes = {});
void GradientInto(OpCode op, const NDArray& x, const NDArray& dz, NDArray& dx,
                  AttributesRef attributes = {});

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_POINTWISE_H_
