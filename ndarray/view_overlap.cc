#include "tidepool/ndarray/view_overlap.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tidepool/ndarray/repeated_places.h"
#include "tidepool/ndarray/step_reach.h"

namespace tidepool {
namespace {

int64_t Width(const NDArray& array) { return static_cast<int64_t>(DTypeBytes(array.dtype())); }

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
  // Of most arrays the axes come in the order of their steps, the largest first.
  int64_t passed = 0;  // by all smaller steps together
  int axis = rank - 1;
  for (; axis >= 0 && dims[axis] != 0; --axis) {
    if (dims[axis] == 1) continue;
    const int64_t step = std::abs(strides[axis]);
    if (step <= passed) break;
    passed += step * (dims[axis] - 1);
  }
  if (axis < 0 || std::find(dims, dims + rank, 0) != dims + rank) return false;
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
  // In elements where all lie on one raster, else in bytes.
  const int64_t width = Width(a);
  const bool is_raster = width == Width(b) && (b_begin - a_begin) % width == 0;
  const int64_t unit = is_raster ? width : 1;
  StepReach reach;
  for (const NDArray* view : {&a, &b}) {
    for (int i = 0; i < view->rank(); ++i) {
      reach.Add(std::abs(view->strides()[i]) * Width(*view) / unit, view->dim(i) - 1);
    }
    if (!is_raster) reach.Add(1, Width(*view) - 1);
  }
  return reach.Reaches((b_end - a_begin) / unit - 1);
}

}  // namespace tidepool
