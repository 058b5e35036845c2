// What elementwise operators take besides arrays; see attributes.h. Of what has no attributes here
// the call's are null.
#ifndef TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_ELEMENTWISE_H_
#define TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_ELEMENTWISE_H_

#include <limits>

#include "tidepool/ndarray/dtype.h"

namespace tidepool {

// low <= high; infinities leave a side open. Of integer arrays: whole numbers.
struct ClipAttributes {
  double low = 0;   // what is below becomes this
  double high = 0;  // what is above becomes this
};

// A bound in type T: rounded to a float type; of an integer type the nearest number.
template <typename T>
constexpr T ClipBound(double bound) {
  if constexpr (kIsFloat<T>) {
    return ConvertElement<T>(bound);
  } else {
    if (bound <= static_cast<double>(std::numeric_limits<T>::min())) {
      return std::numeric_limits<T>::min();
    }
    return bound >= static_cast<double>(std::numeric_limits<T>::max())
               ? std::numeric_limits<T>::max()
               : static_cast<T>(bound);
  }
}

// Leaky ReLU and ELU, and their gradients.
struct AlphaAttributes {
  double alpha = 0;  // the slope below 0; of ELU the limit there, negated
};

// GELU and its gradient.
struct GeluAttributes {
  // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) instead of x / 2 * (1 + erf(x / sqrt(2))):
  // Hendrycks and Gimpel 2016.
  bool tanh_form = false;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_ELEMENTWISE_H_
