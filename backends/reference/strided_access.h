// Element access by index for plain loops, any strides.
#ifndef TIDEPOOL_BACKENDS_REFERENCE_STRIDED_ACCESS_H_
#define TIDEPOOL_BACKENDS_REFERENCE_STRIDED_ACCESS_H_

#include <cstdint>

#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool {

template <typename T, typename... Index>
T& At(const TensorRef& ref, Index... index) {
  int axis = 0;
  int64_t offset = 0;
  ((offset += index * ref.strides[axis++]), ...);
  return ref.as<T>()[offset];
}

}  // namespace tidepool

#endif  // TIDEPOOL_BACKENDS_REFERENCE_STRIDED_ACCESS_H_
