#include "tidepool/ndarray/view_overlap.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tidepool/ndarray/repeated_places.h"

namespace tidepool {
namespace {

int64_t Width(const NDArray& array) { return static_cast<int64_t>(DTypeBytes(array.dtype())); }

// Of one element the stride says nothing.
bool HaveStridesAlike(const NDArray& a, const NDArray& b) {
  for (int i = 0; i < a.rank(); ++i) {
    if (a.strides()[i] != b.strides()[i] && a.dim(i) > 1 && b.dim(i) > 1) return false;
  }
  return true;
}

// `a` begins at or before `b`; both have strides alike and the same type. Writes the distance between
// them as one index per axis, so that each view is a box of indices. True when the boxes are known
// to be apart.
bool BoxesAreApart(const NDArray& a, const NDArray& b) {
  const int64_t bytes = b.raw_data() - a.raw_data();
  if (bytes % Width(a) != 0) return false;
  const auto stride_of = [&](int axis) { return (a.dim(axis) > 1 ? a : b).strides()[axis]; };
  int axes[kMaxRank];  // on which one of them has several, largest stride first
  int count = 0;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.dim(i) == 1 && b.dim(i) == 1) continue;
    int at = count++;
    for (; at > 0 && stride_of(axes[at - 1]) < stride_of(i); --at) axes[at] = axes[at - 1];
    axes[at] = i;
  }
  int64_t distance = bytes / Width(a);
  int64_t outer_stride = INT64_MAX;
  bool apart = false;
  for (int i = 0; i < count; ++i) {
    const int64_t stride = stride_of(axes[i]);
    if (stride <= 0) return false;
    const int64_t shift = distance / stride;
    distance %= stride;
    // An index must never carry into the next axis, or one element would have two indices.
    const int64_t end = std::max(a.dim(axes[i]), shift + b.dim(axes[i]));
    if (end > outer_stride / stride) return false;
    if (shift >= a.dim(axes[i])) apart = true;
    outer_stride = stride;
  }
  return apart || distance != 0;
}

}  // namespace

std::pair<const std::byte*, const std::byte*> ExtentOf(const NDArray& array) {
  int64_t lowest = 0, highest = 0;
  for (int i = 0; i < array.rank(); ++i) {
    const int64_t reach = (array.dim(i) - 1) * array.strides()[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  return {array.raw_data() + lowest * Width(array),
          array.raw_data() + (highest + 1) * Width(array)};
}

bool MayRepeat(const NDArray& array) {
  return MayRepeat(array.rank(), array.shape().dims(), array.strides());
}

bool MayRepeat(int rank, const int64_t* dims, const int64_t* strides) {
  if (std::find(dims, dims + rank, 0) != dims + rank) return false;
  int64_t steps[kMaxRank], last[kMaxRank];  // of the axes that have any, the smallest step first
  int axes = 0;
  for (int i = 0; i < rank; ++i) {
    if (dims[i] == 1) continue;
    const int64_t step = std::abs(strides[i]);
    int at = axes++;
    for (; at > 0 && steps[at - 1] > step; --at) {
      steps[at] = steps[at - 1];
      last[at] = last[at - 1];
    }
    steps[at] = step;
    last[at] = dims[i] - 1;
  }
  int64_t reach = 0;  // of all smaller steps together
  for (int i = 0; i < axes; ++i) {
    if (steps[i] <= reach) return true;
    reach += steps[i] * last[i];
  }
  return false;
}

bool ViewsOverlap(const NDArray& a, const NDArray& b) {
  if (!MayShareMemory(a.buffer().get(), b.buffer().get())) return false;
  if (a.NumElements() == 0 || b.NumElements() == 0) return false;
  const auto [a_begin, a_end] = ExtentOf(a);
  const auto [b_begin, b_end] = ExtentOf(b);
  if (a_begin >= b_end || b_begin >= a_end) return false;
  if (a.dtype() != b.dtype() || a.rank() != b.rank() || !HaveStridesAlike(a, b)) return true;
  return !(a_begin <= b_begin ? BoxesAreApart(a, b) : BoxesAreApart(b, a));
}

}  // namespace tidepool
