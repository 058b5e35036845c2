// Scalar: a number that an array is combined with, as in `2.0 * x`, `x > 0` or Full(shape, 1). C++ numbers
// convert to it and keep their value: integers of 64 bits are exact, which a double does not hold above 2^53.
//
// A scalar never changes an array's type: where it meets an array it becomes an element of the array's type
// (To<T>), as Python's numbers do in NumPy 2. What an operator does with a scalar that an integer type does not
// hold is said where the operator is.
#ifndef TIDEPOOL_NDARRAY_SCALAR_H_
#define TIDEPOOL_NDARRAY_SCALAR_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "tidepool/ndarray/dtype.h"

namespace tidepool {

template <typename T>
concept ScalarNumber = std::is_arithmetic_v<T> || kIs16BitFloat<T>;

class Scalar {
 public:
  template <ScalarNumber T>
  constexpr Scalar(T value) {  // NOLINT: converts on purpose
    static_assert(!std::is_integral_v<T> || sizeof(T) <= 8, "no element type holds it");
    if constexpr (std::is_same_v<T, bool>) {
      kind_ = Kind::kBool;
      whole_ = value;
    } else if constexpr (std::is_integral_v<T>) {
      kind_ = Kind::kInteger;
      is_large_ = !std::in_range<int64_t>(+value);
      whole_ = static_cast<int64_t>(value);
    } else {
      kind_ = Kind::kReal;
      if constexpr (kIs16BitFloat<T>) {
        real_ = static_cast<float>(value);
      } else {
        real_ = static_cast<double>(value);
      }
    }
  }

  bool is_bool() const { return kind_ == Kind::kBool; }
  // A real number has a fraction or may have one; integers and bools do not.
  bool is_real() const { return kind_ == Kind::kReal; }

  // As an element of that type, by the rules of ConvertElement (dtype.h).
  template <typename T>
  constexpr T To() const {
    if (is_real()) return ConvertElement<T>(real_);
    return is_large_ ? ConvertElement<T>(static_cast<uint64_t>(whole_)) : ConvertElement<T>(whole_);
  }
  // Whether a double has exactly this value; then To<double>() is it.
  bool FitsDouble() const;
  // Whether `dtype` holds it: a float type holds every number, rounded; an integer type whole numbers of
  // its range; bool 0 and 1.
  bool FitsIn(DType dtype) const;

  std::string ToString() const;

 private:
  enum class Kind : uint8_t { kBool, kInteger, kReal };

  Kind kind_;
  bool is_large_ = false;  // whole_ is the bits of a u64 that i64 does not hold
  int64_t whole_ = 0;
  double real_ = 0;
};

// Throws kInvalidArgument, naming the operator, the operand and both, unless FitsIn(dtype).
void CheckFits(const char* op, const char* operand, const Scalar& value, DType dtype);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_SCALAR_H_
