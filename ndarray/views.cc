// Views: other shapes and strides over the same bytes.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

// Strides that walk the elements of a view in row-major order in another shape; false when no
// strides do. Axes that the view walks evenly are merged and split again.
bool StridesForShape(const Shape& from, const int64_t* from_strides, const Shape& to,
                     int64_t* to_strides) {
  int64_t dims[kMaxRank], strides[kMaxRank];
  int merged = 0;
  for (int i = 0; i < from.rank(); ++i) {
    if (from[i] == 1) continue;
    if (merged > 0 && strides[merged - 1] == from_strides[i] * from[i]) {
      dims[merged - 1] *= from[i];
      strides[merged - 1] = from_strides[i];
      continue;
    }
    dims[merged] = from[i];
    strides[merged++] = from_strides[i];
  }
  int axis = merged - 1;
  int64_t taken = 1;  // of dims[axis]
  for (int i = to.rank() - 1; i >= 0; --i) {
    if (axis >= 0 && taken == dims[axis] && to[i] != 1) {
      --axis;
      taken = 1;
    }
    if (axis < 0) {
      to_strides[i] = 1;  // of size 1
      continue;
    }
    to_strides[i] = strides[axis] * taken;
    if (to[i] == 1) continue;
    if (dims[axis] % (taken * to[i]) != 0) return false;
    taken *= to[i];
  }
  return true;
}

}  // namespace

bool NDArray::ViewAs(const Shape& shape, NDArray* view) const {
  if (shape.NumElements() != NumElements()) return false;
  if (is_dense()) {
    shape.SetDenseStrides(view->strides_);
  } else if (!StridesForShape(shape_, strides_, shape, view->strides_)) {
    return false;
  }
  view->buffer_ = buffer_;
  view->data_ = data_;
  view->dtype_ = dtype_;
  view->defined_ = true;
  view->empty_on_ = empty_on_;
  view->shape_ = shape;
  return true;
}

// `dims` with the size that stands for -1.
Shape NDArray::Completed(absl::Span<const int64_t> dims) const {
  const auto* const open = std::find(dims.begin(), dims.end(), -1);
  if (open == dims.end() || dims.size() > kMaxRank) return Shape(dims);
  if (std::find(open + 1, dims.end(), -1) != dims.end()) {
    ThrowInvalidArgument(absl::StrCat("Op [reshape]: found more than one -1 in [",
                                      absl::StrJoin(dims, ", "), "], expected at most one"));
  }
  CheckAlive("reshape", "X");
  int64_t sizes[kMaxRank];
  std::copy(dims.begin(), dims.end(), sizes);
  int64_t& size = sizes[open - dims.begin()];
  size = 1;
  const absl::Span<const int64_t> others(sizes, dims.size());
  // Of none the size could be any.
  const int64_t count = Shape(others).NumElements();
  if (count == 0 || NumElements() % count != 0) {
    ThrowInvalidArgument(absl::StrCat("Op [reshape]: no size for -1 makes ", shape_.ToString(),
                                      " [", absl::StrJoin(dims, ", "), "]"));
  }
  size = NumElements() / count;
  return Shape(others);
}

NDArray NDArray::Flatten() const { return ReshapeOrCopy(Shape{NumElements()}); }

NDArray NDArray::Reshape(const Shape& shape) const {
  CheckAlive("reshape", "X");
  NDArray view;
  if (!ViewAs(shape, &view)) {
    ThrowInvalidArgument(absl::StrCat("Op [reshape]: cannot view shape ", shape_.ToString(),
                                      is_dense() ? "" : " (with gaps)", " as ", shape.ToString()));
  }
  return view;
}

NDArray NDArray::ReshapeOrCopy(const Shape& shape) const {
  CheckAlive("reshape", "X");
  NDArray view;
  return ViewAs(shape, &view) || shape.NumElements() != NumElements() ? Reshape(shape)
                                                                      : Dup().Reshape(shape);
}

NDArray NDArray::Transpose() const {
  int axes[kMaxRank];
  for (int i = 0; i < rank(); ++i) axes[i] = rank() - 1 - i;
  return Transpose(absl::Span<const int>(axes, rank()));
}

NDArray NDArray::SwapAxes(int axis1, int axis2) const {
  CheckAlive("swap_axes", "X");
  const int one = NormalizeAxis("swap_axes", axis1, rank());
  const int two = NormalizeAxis("swap_axes", axis2, rank());
  int axes[kMaxRank];
  std::iota(axes, axes + rank(), 0);
  std::swap(axes[one], axes[two]);
  return Transpose(absl::Span<const int>(axes, rank()));
}

NDArray NDArray::Transpose(absl::Span<const int> axes) const {
  CheckAlive("transpose", "X");
  NDArray view = *this;
  int64_t dims[kMaxRank];
  bool seen[kMaxRank] = {};
  bool is_permutation = static_cast<int>(axes.size()) == rank();
  for (int i = 0; is_permutation && i < rank(); ++i) {
    const int axis = axes[i] < 0 ? axes[i] + rank() : axes[i];
    is_permutation = axis >= 0 && axis < rank() && !seen[axis];
    if (!is_permutation) break;
    seen[axis] = true;
    dims[i] = shape_[axis];
    view.strides_[i] = strides_[axis];
  }
  if (!is_permutation) {
    ThrowInvalidArgument(absl::StrCat("Op [transpose]: axes [", absl::StrJoin(axes, ", "),
                                      "] of shape ", shape_.ToString(),
                                      ", expected each axis once"));
  }
  view.shape_ = Shape(absl::Span<const int64_t>(dims, rank()));
  return view;
}

NDArray NDArray::Slice(int axis, int64_t begin, int64_t end) const {
  CheckAlive("slice", "X");
  axis = NormalizeAxis("slice", axis, rank());
  if (begin < 0 || end < begin || end > shape_[axis]) {
    ThrowInvalidArgument(absl::StrCat("Op [slice]: [", begin, ", ", end, ") of axis ", axis,
                                      " of shape ", shape_.ToString()));
  }
  NDArray view = *this;
  int64_t dims[kMaxRank];
  std::copy_n(shape_.dims(), rank(), dims);
  dims[axis] = end - begin;
  view.shape_ = Shape(absl::Span<const int64_t>(dims, rank()));
  if (view.data_ != nullptr) {
    view.data_ += begin * strides_[axis] * static_cast<int64_t>(DTypeBytes(dtype_));
  }
  return view;
}

NDArray NDArray::Slice(int axis, int64_t begin, int64_t end, int64_t step) const {
  CheckAlive("slice", "X");
  axis = NormalizeAxis("slice", axis, rank());
  const int64_t size = shape_[axis];
  const bool forward = step > 0 && begin >= 0 && begin <= end && end <= size;
  const bool backward = step < 0 && end >= -1 && end <= begin && begin < size;
  if (!forward && !backward && !(step < 0 && size == 0)) {
    ThrowInvalidArgument(absl::StrCat("Op [slice]: from ", begin, " to ", end, " by ", step,
                                      " of axis ", axis, " of shape ", shape_.ToString(),
                                      "; going back, begin is below the size and end at least -1"));
  }
  const int64_t distance = step > 0 ? end - begin : begin - end;
  // A step beyond the axis is as good as one of its length.
  step = std::clamp(step, -std::max<int64_t>(size, 1), std::max<int64_t>(size, 1));
  const int64_t count = size == 0 ? 0 : (distance + std::abs(step) - 1) / std::abs(step);
  NDArray view = *this;
  int64_t dims[kMaxRank];
  std::copy_n(shape_.dims(), rank(), dims);
  dims[axis] = count;
  view.shape_ = Shape(absl::Span<const int64_t>(dims, rank()));
  view.strides_[axis] = strides_[axis] * step;
  if (view.data_ != nullptr && count > 0) {
    view.data_ += begin * strides_[axis] * static_cast<int64_t>(DTypeBytes(dtype_));
  }
  return view;
}

NDArray NDArray::Index(int axis, int64_t index) const {
  CheckAlive("index", "X");
  axis = NormalizeAxis("index", axis, rank());
  if (index < 0 || index >= shape_[axis]) {
    ThrowInvalidArgument(
        absl::StrCat("Op [index]: ", index, " in axis ", axis, " of shape ", shape_.ToString()));
  }
  return Slice(axis, index, index + 1).Squeeze(axis);
}

NDArray NDArray::BroadcastTo(const Shape& shape) const {
  CheckAlive("broadcast", "X");
  const int lead = shape.rank() - rank();
  bool fits = lead >= 0;
  NDArray view = *this;
  for (int i = 0; fits && i < shape.rank(); ++i) {
    const int64_t dim = i < lead ? 1 : shape_[i - lead];
    fits = dim == shape[i] || dim == 1;
    view.strides_[i] = i >= lead && dim == shape[i] ? strides_[i - lead] : 0;
  }
  if (!fits) {
    ThrowInvalidArgument(absl::StrCat("Op [broadcast]: shape ", shape_.ToString(),
                                      " does not broadcast to ", shape.ToString()));
  }
  view.shape_ = shape;
  return view;
}

NDArray NDArray::Squeeze() const {
  CheckAlive("squeeze", "X");
  NDArray view = *this;
  int64_t dims[kMaxRank];
  int out = 0;
  for (int i = 0; i < rank(); ++i) {
    if (shape_[i] == 1) continue;
    dims[out] = shape_[i];
    view.strides_[out++] = strides_[i];
  }
  view.shape_ = Shape(absl::Span<const int64_t>(dims, out));
  return view;
}

NDArray NDArray::Squeeze(int axis) const {
  CheckAlive("squeeze", "X");
  axis = NormalizeAxis("squeeze", axis, rank());
  if (shape_[axis] != 1) {
    ThrowInvalidArgument(absl::StrCat("Op [squeeze]: axis ", axis, " of shape ", shape_.ToString(),
                                      " has size ", shape_[axis], ", expected 1"));
  }
  NDArray view = *this;
  int64_t dims[kMaxRank];
  int out = 0;
  for (int i = 0; i < rank(); ++i) {
    if (i == axis) continue;
    dims[out] = shape_[i];
    view.strides_[out++] = strides_[i];
  }
  view.shape_ = Shape(absl::Span<const int64_t>(dims, out));
  return view;
}

NDArray NDArray::ExpandDims(int axis) const {
  CheckAlive("expand_dims", "X");
  axis = NormalizeAxis("expand_dims", axis, rank() + 1);
  if (rank() == kMaxRank) {
    ThrowInvalidArgument(absl::StrCat("Op [expand_dims]: shape ", shape_.ToString(), " has rank ",
                                      rank(), ", which is the most there is"));
  }
  NDArray view = *this;
  int64_t dims[kMaxRank];
  for (int i = 0; i <= rank(); ++i) {
    dims[i] = i == axis ? 1 : shape_[i - (i > axis)];
    view.strides_[i] = i == axis ? 1 : strides_[i - (i > axis)];
  }
  view.shape_ = Shape(absl::Span<const int64_t>(dims, rank() + 1));
  return view;
}

NDArray NDArray::Diagonal(int64_t offset, int axis1, int axis2) const {
  CheckAlive("diagonal", "X");
  if (rank() < 2) {
    ThrowInvalidArgument(absl::StrCat("Op [diagonal]: X has shape ", shape_.ToString(),
                                      ", expected at least rank 2"));
  }
  axis1 = NormalizeAxis("diagonal", axis1, rank());
  axis2 = NormalizeAxis("diagonal", axis2, rank());
  if (axis1 == axis2) {
    ThrowInvalidArgument(absl::StrCat("Op [diagonal]: both axes are ", axis1, ", expected two"));
  }
  // Beyond the array there is nothing, however far.
  const int64_t below = std::clamp<int64_t>(offset, -shape_[axis1], 0);
  const int64_t above = std::clamp<int64_t>(offset, 0, shape_[axis2]);
  NDArray view = *this;
  int64_t dims[kMaxRank];
  int kept = 0;
  for (int i = 0; i < rank(); ++i) {
    if (i == axis1 || i == axis2) continue;
    dims[kept] = shape_[i];
    view.strides_[kept++] = strides_[i];
  }
  dims[kept] = std::min(shape_[axis1] + below, shape_[axis2] - above);
  view.strides_[kept++] = strides_[axis1] + strides_[axis2];
  view.shape_ = Shape(absl::Span<const int64_t>(dims, kept));
  if (view.data_ != nullptr && dims[kept - 1] > 0) {
    view.data_ += (above * strides_[axis2] - below * strides_[axis1]) *
                  static_cast<int64_t>(DTypeBytes(dtype_));
  }
  return view;
}

}  // namespace tidepool
