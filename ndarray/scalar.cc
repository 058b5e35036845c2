#include "tidepool/ndarray/scalar.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {

void Scalar::ThrowTooLarge(uint64_t value) {
  ThrowInvalidArgument(absl::StrCat("scalar: ", value, ", expected at most 9223372036854775807, the largest "
                                    "integer that an element type holds"));
}

bool Scalar::FitsDouble() const {
  if (is_real()) return true;
  const auto nearest = static_cast<double>(whole_);
  return nearest < 0x1p63 && static_cast<int64_t>(nearest) == whole_;
}

bool Scalar::FitsIn(DType dtype) const {
  if (IsFloating(dtype)) return true;
  if (is_real() && !(real_ == std::trunc(real_) && real_ >= -0x1p63 && real_ < 0x1p63)) return false;
  const int64_t whole = is_real() ? static_cast<int64_t>(real_) : whole_;
  return VisitDType(dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (kIsFloat<T>) {
      return true;
    } else if constexpr (std::is_same_v<T, bool>) {
      return whole == 0 || whole == 1;
    } else {
      return std::in_range<T>(whole);
    }
  });
}

std::string Scalar::ToString() const {
  if (is_real()) return absl::StrCat(real_);
  return is_bool() ? (whole_ != 0 ? "true" : "false") : absl::StrCat(whole_);
}

void CheckFits(const char* op, const char* operand, const Scalar& value, DType dtype) {
  if (value.FitsIn(dtype)) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " is ", value.ToString(),
                                    ", expected a whole number that ", DTypeName(dtype), " holds"));
}

}  // namespace tidepool
