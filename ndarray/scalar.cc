#include "tidepool/ndarray/scalar.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {

bool Scalar::FitsDouble() const {
  if (is_real()) return true;
  const auto nearest = To<double>();
  if (is_large_)
    return nearest < 0x1p64 && static_cast<uint64_t>(nearest) == static_cast<uint64_t>(whole_);
  return nearest < 0x1p63 && static_cast<int64_t>(nearest) == whole_;
}

bool Scalar::FitsIn(DType dtype) const {
  if (IsFloating(dtype)) return true;
  if (is_real()) {
    if (!(real_ == std::trunc(real_) && real_ >= -0x1p63 && real_ < 0x1p64)) return false;
    return (real_ < 0x1p63 ? Scalar(static_cast<int64_t>(real_))
                           : Scalar(static_cast<uint64_t>(real_)))
        .FitsIn(dtype);
  }
  return VisitDType(dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (kIsFloat<T>) {
      return true;
    } else if constexpr (std::is_same_v<T, bool>) {
      return whole_ == 0 || whole_ == 1;
    } else {
      return is_large_ ? std::in_range<T>(static_cast<uint64_t>(whole_)) : std::in_range<T>(whole_);
    }
  });
}

std::string Scalar::ToString() const {
  if (is_real()) return absl::StrCat(real_);
  if (is_large_) return absl::StrCat(static_cast<uint64_t>(whole_));
  return is_bool() ? (whole_ != 0 ? "true" : "false") : absl::StrCat(whole_);
}

void CheckFits(const char* op, const char* operand, const Scalar& value, DType dtype) {
  if (value.FitsIn(dtype)) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " is ", value.ToString(),
                                    ", expected a whole number that ", DTypeName(dtype), " holds"));
}

}  // namespace tidepool
