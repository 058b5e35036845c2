#include "tidepool/ndarray/ops/axes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {

Axes::Axes(absl::Span<const int> axes) {
  if (axes.size() > kMaxRank) {
    ThrowInvalidArgument(
        absl::StrCat("axes: ", axes.size(), " of them, expected at most ", kMaxRank));
  }
  count_ = static_cast<int>(axes.size());
  std::copy(axes.begin(), axes.end(), axes_);
}

uint32_t Axes::Mask(const char* op, int rank) const {
  if (count_ == 0) return (1u << rank) - 1;
  uint32_t mask = 0;
  for (const int axis : span()) {
    const uint32_t bit = 1u << NormalizeAxis(op, axis, rank);
    if ((mask & bit) != 0) {
      ThrowInvalidArgument(absl::StrCat("Op [", op, "]: axis ", axis, " comes twice"));
    }
    mask |= bit;
  }
  return mask;
}

}  // namespace tidepool
