// What the reference computes in: for floats the next wider type, so that it can judge others; for
// integers their own type, modulo 2^bits.
#ifndef TIDEPOOL_BACKENDS_REFERENCE_WIDE_H_
#define TIDEPOOL_BACKENDS_REFERENCE_WIDE_H_

#include <type_traits>

#include "tidepool/ndarray/dtype.h"

namespace tidepool {

// f16, bf16, f32: double; f64: long double; integers and bool: themselves.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, long double,
                                std::conditional_t<kIsFloat<T>, double, T>>;

// Rounded once. long double to 16 bits does not happen: those are computed in double.
template <typename T>
T Narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return value;
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_REFERENCE_WIDE_H_
