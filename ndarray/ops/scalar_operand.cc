#include "tidepool/ndarray/ops/scalar_operand.h"

#include "tidepool/ndarray/creation.h"

namespace tidepool {

NDArray ScalarOperand(const Scalar& value, DType dtype, const NDArray& like) {
  const Place place = Place::Scratch(like.device());
  // Kernels are told a double, of which the element is made: as the element itself is, that is it again.
  const bool is_wide = dtype == DType::kInt64 || dtype == DType::kUInt64;
  if (like.device() == Host() || (is_wide && !value.FitsDouble()))
    return FromScalar(value, dtype, place);
  const double element =
      VisitDType(dtype, [&](auto t) { return ConvertElement<double>(value.To<decltype(t)>()); });
  return Full({}, element, dtype, place);
}

}  // namespace tidepool
