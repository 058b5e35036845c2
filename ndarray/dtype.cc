#include "tidepool/ndarray/dtype.h"

#include <algorithm>

namespace tidepool {

DType PromoteTypes(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  if (IsInteger(a) && IsInteger(b)) {
    const size_t widest = std::max(DTypeBytes(a), DTypeBytes(b));
    return widest == 8 ? DType::kInt64 : DType::kInt32;  // two different ones of 8 bits: i8 and u8
  }
  if (IsFloating(a) && IsFloating(b)) {
    const size_t widest = std::max(DTypeBytes(a), DTypeBytes(b));
    return widest == 8 ? DType::kFloat64 : DType::kFloat32;  // two different ones of 16 bits
  }
  const DType real = IsFloating(a) ? a : b;
  const DType whole = IsFloating(a) ? b : a;
  return DTypeBytes(whole) == 1 ? real : DType::kFloat64;
}

}  // namespace tidepool
