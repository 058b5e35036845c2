// Shape of an array: up to kMaxRank sizes, row-major, stored in place. Rank 0 is a scalar; a size
// of 0 makes the array empty.
#ifndef TIDEPOOL_NDARRAY_SHAPE_H_
#define TIDEPOOL_NDARRAY_SHAPE_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/types/span.h"

namespace tidepool {

inline constexpr int kMaxRank = 8;

class Shape {
 public:
  Shape() = default;
  // Throws kInvalidArgument for more than kMaxRank sizes, a negative one, or too many elements.
  Shape(std::initializer_list<int64_t> dims)  // NOLINT: Ones({2, 3}) is the point
      : Shape(absl::Span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(absl::Span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  const int64_t* dims() const { return dims_; }
  absl::Span<const int64_t> span() const { return absl::Span<const int64_t>(dims_, rank_); }
  int64_t NumElements() const {
    int64_t count = 1;
    for (int i = 0; i < rank_; ++i) count *= dims_[i];
    return count;
  }
  // Of a row-major array without gaps, in elements.
  void SetDenseStrides(int64_t* strides) const {
    int64_t stride = 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      strides[i] = stride;
      stride *= dims_[i];
    }
  }
  std::string ToString() const;  // "[2, 3]"

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {  // few: a call costs more
      if (a.dims_[i] != b.dims_[i]) return false;
    }
    return true;
  }

 private:
  friend class NDArray;
  int rank_ = 0;
  int64_t dims_[kMaxRank] = {};
};

// The shape that both broadcast to by NumPy's rules. Throws kInvalidArgument naming `op` and both.
Shape BroadcastShapes(const char* op, const Shape& x, const Shape& y);

// -1 is the last axis. Throws kInvalidArgument naming `op`, the axis and the rank.
int NormalizeAxis(const char* op, int axis, int rank);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_SHAPE_H_
