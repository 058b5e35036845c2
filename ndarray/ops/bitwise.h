// Operators on integers and their bits, element by element, with NumPy's broadcasting; of bool arrays and, or, xor
// and not are those of logic (comparison.h).
//
// Types: integers of one type or promoted as in elementwise.h (i8 with u8: i16), and bool with bool; a bool array beside
// integers is 0 and 1. A number is an element of the array's type, which holds it. Floats are refused, and u64 with a signed type, which no integer type holds. Results are
// made in the current place; the ...Into forms write to an array of that shape and type, which may be the very same
// view as an operand, and allocate nothing.
//
// Errors: kInvalidArgument naming operator, operands, shapes and types; kFailedPrecondition for stale operands.
#ifndef TIDEPOOL_NDARRAY_OPS_BITWISE_H_
#define TIDEPOOL_NDARRAY_OPS_BITWISE_H_

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/scalar.h"

namespace tidepool {

NDArray BitwiseAnd(const NDArray& x, const NDArray& y);
NDArray BitwiseOr(const NDArray& x, const NDArray& y);
NDArray BitwiseXor(const NDArray& x, const NDArray& y);
NDArray BitwiseNot(const NDArray& x);
void BitwiseAndInto(const NDArray& x, const NDArray& y, NDArray& z);
void BitwiseOrInto(const NDArray& x, const NDArray& y, NDArray& z);
void BitwiseXorInto(const NDArray& x, const NDArray& y, NDArray& z);
void BitwiseNotInto(const NDArray& x, NDArray& z);

// x by y bits. Counts that are negative or at least the type's width leave 0, and of a right shift of negative numbers,
// which keeps the sign, -1. Not of bool.
NDArray ShiftLeft(const NDArray& x, const NDArray& y);
NDArray ShiftRight(const NDArray& x, const NDArray& y);
void ShiftLeftInto(const NDArray& x, const NDArray& y, NDArray& z);
void ShiftRightInto(const NDArray& x, const NDArray& y, NDArray& z);

// The greatest common divisor of |x| and |y|, of 0 and x |x|; the least common multiple, modulo 2^bits, of 0 and x 0.
// What is not less than 2^(bits - 1) wraps. Not of bool.
NDArray Gcd(const NDArray& x, const NDArray& y);
NDArray Lcm(const NDArray& x, const NDArray& y);
void GcdInto(const NDArray& x, const NDArray& y, NDArray& z);
void LcmInto(const NDArray& x, const NDArray& y, NDArray& z);

NDArray BitwiseAnd(const NDArray& x, const Scalar& y);
NDArray BitwiseOr(const NDArray& x, const Scalar& y);
NDArray BitwiseXor(const NDArray& x, const Scalar& y);
NDArray ShiftLeft(const NDArray& x, const Scalar& y);
NDArray ShiftRight(const NDArray& x, const Scalar& y);
NDArray Gcd(const NDArray& x, const Scalar& y);
NDArray Lcm(const NDArray& x, const Scalar& y);

// As in NumPy comparisons need brackets beside them: (x > 0) & (x < 1). There is no << and >>, which print.
inline NDArray operator&(const NDArray& x, const NDArray& y) { return BitwiseAnd(x, y); }
inline NDArray operator|(const NDArray& x, const NDArray& y) { return BitwiseOr(x, y); }
inline NDArray operator^(const NDArray& x, const NDArray& y) { return BitwiseXor(x, y); }
inline NDArray operator&(const NDArray& x, const Scalar& y) { return BitwiseAnd(x, y); }
inline NDArray operator|(const NDArray& x, const Scalar& y) { return BitwiseOr(x, y); }
inline NDArray operator^(const NDArray& x, const Scalar& y) { return BitwiseXor(x, y); }
inline NDArray operator~(const NDArray& x) { return BitwiseNot(x); }

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_BITWISE_H_
