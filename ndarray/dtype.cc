#include "tidepool/ndarray/dtype.h"

#include <algorithm>
#include <cstddef>

namespace tidepool {

DType PromoteTypes(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  if (IsInteger(a) && IsInteger(b)) {
    const DType wider = DTypeBytes(a) >= DTypeBytes(b) ? a : b, other = wider == a ? b : a;
    if (IsUnsigned(wider) == IsUnsigned(other)) return wider;
    if (!IsUnsigned(wider) && DTypeBytes(wider) > DTypeBytes(other)) return wider;
    switch (DTypeBytes(wider)) {  // the next wider one with a sign
      case 1:
        return DType::kInt16;
      case 2:
        return DType::kInt32;
      case 4:
        return DType::kInt64;
      default:
        return DType::kFloat64;
    }
  }
  if (IsFloating(a) && IsFloating(b)) {
    const size_t widest = std::max(DTypeBytes(a), DTypeBytes(b));
    return widest == 8 ? DType::kFloat64 : DType::kFloat32;  // two different ones of 16 bits
  }
  const DType real = IsFloating(a) ? a : b;
  const DType whole = IsFloating(a) ? b : a;
  if (DTypeBytes(whole) == 1) return real;
  if (DTypeBytes(whole) > 2) return DType::kFloat64;
  return DTypeBytes(real) == 2 ? DType::kFloat32 : real;
}

DType PromoteTypes(absl::Span<const DType> types) {
  DType result = DType::kBool;
  for (const bool floats : {true, false}) {
    for (const DType type : types) {
      if (IsFloating(type) == floats) result = PromoteTypes(result, type);
    }
  }
  return result;
}

}  // namespace tidepool
