// The bytes of a buffer that a view has elements in.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_PLACES_H_
#define TIDEPOOL_NDARRAY_GRADIENT_PLACES_H_

#include <cstdint>

#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/step_reach.h"

namespace tidepool {

class NDArray;
struct TapedView;

// From its first to its last byte, and of views with gaps (columns, every second row) how the gaps come again: so that parts of one
// array that lie between each other are told apart.
class Places {
 public:
  Places() = default;
  // Without gaps.
  Places(int64_t begin, int64_t end) : begin_(begin), end_(end) {}
  explicit Places(const TapedView& view);
  explicit Places(const NDArray& array);

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  // So many bytes further on.
  Places Shifted(int64_t bytes) const {
    Places shifted = *this;
    shifted.begin_ += bytes;
    shifted.end_ += bytes;
    return shifted;
  }
  // The largest number of bytes after which its gaps come again; 0: it has none.
  int64_t pitch() const { return gap_count_ > 0 ? gaps_[gap_count_ - 1].pitch : 0; }
  // Within how many bytes from its first one on it lies, of each `pitch` bytes as counted from there; 0: that is not known to be
  // less than all.
  int64_t RunOf(int64_t pitch) const;
  // Whether there may be a byte that is of both. Exact for slices of one dense array that show the same axes, with steps or without,
  // of up to kMost + 1 axes (of kMost where steps do not divide the sizes), but as StepReach says.
  bool MayOverlap(const Places& other) const {
    return begin_ < other.end_ && other.begin_ < end_ && !AreInGapsOf(other) &&
           !other.AreInGapsOf(*this) && ((run_ == 0 && other.run_ == 0) || StepsMeet(other));
  }

 private:
  static constexpr int kMost = 3;
  // Every byte lies less than `run` behind the first one, or that and a multiple of `pitch`.
  struct Gap {
    int64_t pitch, run;
  };
  // Elements from the one of number `first` on. Most have no gaps.
  void Set(int64_t first, DType dtype, int rank, const int64_t* dims, const int64_t* strides) {
    const auto width = static_cast<int64_t>(DTypeBytes(dtype));
    int64_t count = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dims[i] != 1 && strides[i] != count)
        return SetWithGaps(first, width, rank, dims, strides);
      count *= dims[i];
    }
    begin_ = first * width;
    end_ = begin_ + count * width;
  }
  void SetWithGaps(int64_t first, int64_t width, int rank, const int64_t* dims,
                   const int64_t* strides);
  bool AreInGapsOf(const Places& other) const;
  // Beside one of the two whose gaps do not come again in the same places.
  bool StepsMeet(const Places& other) const;
  void AddSteps(StepReach& reach) const;

  int64_t begin_ = 0, end_ = 0;
  int gap_count_ = 0;
  Gap gaps_[kMost];  // written as far as there are some
  // Where gaps do not come again in the same places of larger ones: not 0, but the bytes that lie behind one another at each place, and
  // the axes that lead to them.
  struct Axis {
    int64_t step, most;
  };
  int64_t run_ = 0;
  Axis axes_[kMost];  // written only where run_ is
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_PLACES_H_
