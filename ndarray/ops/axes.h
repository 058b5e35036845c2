// A set of axes as an argument: Sum(x, 1), Sum(x, {0, 2}), Sum(x, {}) and Sum(x), all of them.
#ifndef TIDEPOOL_NDARRAY_OPS_AXES_H_
#define TIDEPOOL_NDARRAY_OPS_AXES_H_

#include <initializer_list>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {

// Of no axes stands for all. Negative axes count from the last. Allocates nothing.
class Axes {
 public:
  Axes() = default;
  Axes(int axis) : Axes(absl::Span<const int>(&axis, 1)) {}  // NOLINT
  Axes(std::initializer_list<int> axes)                      // NOLINT
      : Axes(absl::Span<const int>(axes.begin(), axes.size())) {}
  Axes(const std::vector<int>& axes) : Axes(absl::Span<const int>(axes)) {}  // NOLINT
  // Throws kInvalidArgument for more than kMaxRank axes.
  Axes(absl::Span<const int> axes);  // NOLINT

  absl::Span<const int> span() const { return absl::Span<const int>(axes_, count_); }
  // Bit i: axis i of an array of `rank`. Throws kInvalidArgument naming `op` for an axis outside of
  // the rank or one that comes twice.
  uint32_t Mask(const char* op, int rank) const;

 private:
  int count_ = 0;
  int axes_[kMaxRank] = {};
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_AXES_H_
