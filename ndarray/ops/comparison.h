// Comparisons, logic and choice, element by element, with NumPy's broadcasting. Results are bool
// arrays, those of Where of the type of X and Y. The plain forms allocate the result in the current
// place; the ...Into forms write to an array of the right shape and type. The results of logic and
// Where may be the very same view as an operand.
//
// Types: comparisons and Where take all; operands of different types promote (PromoteTypes of
// dtype.h) through copies made by Cast. Logic takes bool. NaN is equal to nothing, nor less or
// greater; false < true.
//
// Errors: kInvalidArgument naming operator, operands, shapes and types; kFailedPrecondition for
// stale operands.
#ifndef TIDEPOOL_NDARRAY_OPS_COMPARISON_H_
#define TIDEPOOL_NDARRAY_OPS_COMPARISON_H_

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/scalar.h"

namespace tidepool {

// Whether it is so of each pair of elements; and the same into z.
NDArray Equal(const NDArray& x, const NDArray& y);
NDArray NotEqual(const NDArray& x, const NDArray& y);
NDArray Less(const NDArray& x, const NDArray& y);
NDArray LessEqual(const NDArray& x, const NDArray& y);
NDArray Greater(const NDArray& x, const NDArray& y);
NDArray GreaterEqual(const NDArray& x, const NDArray& y);
void EqualInto(const NDArray& x, const NDArray& y, NDArray& z);
void NotEqualInto(const NDArray& x, const NDArray& y, NDArray& z);
void LessInto(const NDArray& x, const NDArray& y, NDArray& z);
void LessEqualInto(const NDArray& x, const NDArray& y, NDArray& z);
void GreaterInto(const NDArray& x, const NDArray& y, NDArray& z);
void GreaterEqualInto(const NDArray& x, const NDArray& y, NDArray& z);

// With a number: float arrays compare with it as an element of their type, as Python's numbers do in NumPy 2;
// integer and bool arrays with its very value, whether their type holds it or not (bool: as 0 and 1).
NDArray Equal(const NDArray& x, const Scalar& y);
NDArray NotEqual(const NDArray& x, const Scalar& y);
NDArray Less(const NDArray& x, const Scalar& y);
NDArray LessEqual(const NDArray& x, const Scalar& y);
NDArray Greater(const NDArray& x, const Scalar& y);
NDArray GreaterEqual(const NDArray& x, const Scalar& y);

// Element by element: an array is no condition of an `if`.
#define TIDEPOOL_COMPARE(op, Name, Turned)                                              \
  inline NDArray operator op(const NDArray& x, const NDArray& y) { return Name(x, y); } \
  inline NDArray operator op(const NDArray& x, const Scalar& y) { return Name(x, y); }  \
  inline NDArray operator op(const Scalar& x, const NDArray& y) { return Turned(y, x); }
TIDEPOOL_COMPARE(==, Equal, Equal)
TIDEPOOL_COMPARE(!=, NotEqual, NotEqual)
TIDEPOOL_COMPARE(<, Less, Greater)
TIDEPOOL_COMPARE(<=, LessEqual, GreaterEqual)
TIDEPOOL_COMPARE(>, Greater, Less)
TIDEPOOL_COMPARE(>=, GreaterEqual, LessEqual)
#undef TIDEPOOL_COMPARE

// Of bool operands, else kInvalidArgument; and the same into z.
NDArray LogicalAnd(const NDArray& x, const NDArray& y);
NDArray LogicalOr(const NDArray& x, const NDArray& y);
NDArray LogicalXor(const NDArray& x, const NDArray& y);
NDArray LogicalNot(const NDArray& x);
void LogicalAndInto(const NDArray& x, const NDArray& y, NDArray& z);
void LogicalOrInto(const NDArray& x, const NDArray& y, NDArray& z);
void LogicalXorInto(const NDArray& x, const NDArray& y, NDArray& z);
void LogicalNotInto(const NDArray& x, NDArray& z);

// Of any type: integers are never NaN or infinite and always finite.
NDArray IsNan(const NDArray& x);
NDArray IsInf(const NDArray& x);
NDArray IsFinite(const NDArray& x);
NDArray SignBit(const NDArray& x);  // whether it is set: of -0 and of NaN too
void IsNanInto(const NDArray& x, NDArray& z);
void IsInfInto(const NDArray& x, NDArray& z);
void IsFiniteInto(const NDArray& x, NDArray& z);
void SignBitInto(const NDArray& x, NDArray& z);

// condition ? x : y; `condition` is bool, all three broadcast.
NDArray Where(const NDArray& condition, const NDArray& x, const NDArray& y);
// With a number, of the other's type, which holds it (else kInvalidArgument); of two numbers, `dtype`'s.
NDArray Where(const NDArray& condition, const NDArray& x, const Scalar& y);
NDArray Where(const NDArray& condition, const Scalar& x, const NDArray& y);
NDArray Where(const NDArray& condition, const Scalar& x, const Scalar& y,
              DType dtype = DType::kFloat32);
// The result's type is as elementwise.h says.
void WhereInto(const NDArray& condition, const NDArray& x, const NDArray& y, NDArray& z);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_COMPARISON_H_
