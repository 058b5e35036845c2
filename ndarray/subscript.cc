#include "tidepool/ndarray/subscript.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

// How many axes of the array it stands for.
int AxesOf(const Subscript& subscript) {
  switch (subscript.kind) {
    case Subscript::Kind::kNewAxis:
    case Subscript::Kind::kEllipsis:
      return 0;
    case Subscript::Kind::kArray:
      return subscript.array->dtype() == DType::kBool ? subscript.array->rank() : 1;
    default:
      return 1;
  }
}

NDArray Numbered(const NDArray& x, int axis, int64_t index) {
  const int64_t size = x.shape()[axis];
  return x.Index(axis, index < 0 ? index + size : index);
}

NDArray Ranged(const NDArray& x, int axis, const Range& range) {
  const int64_t size = x.shape()[axis];
  const bool forward = range.step > 0;
  // The places from which and to which it goes: one before the first element is -1.
  const int64_t lowest = forward ? 0 : -1, highest = forward ? size : size - 1;
  const auto place = [&](int64_t at) {
    return std::clamp(at < 0 ? at + size : at, lowest, highest);
  };
  const int64_t begin = range.begin.has_value() ? place(*range.begin) : forward ? lowest : highest;
  const int64_t end = range.end.has_value() ? place(*range.end) : forward ? highest : lowest;
  if (begin == 0 && end == size && range.step == 1) return x;
  if (forward ? begin >= end : begin <= end) return x.Slice(axis, 0, 0);
  return x.Slice(axis, begin, end, std::max(range.step, -std::numeric_limits<int64_t>::max()));
}

void CheckNumbers(const Shape& shape, absl::Span<const Subscript> complete) {
  int axis = 0;
  for (const Subscript& subscript : complete) {
    if (subscript.kind == Subscript::Kind::kIndex) {
      const int64_t index = subscript.index(), size = shape[axis];
      if (index < -size || index >= size) {
        ThrowInvalidArgument(absl::StrCat("Op [index]: ", index, " in axis ", axis, " of shape ",
                                          shape.ToString(), ", expected ", -size, " to ",
                                          size - 1));
      }
    } else if (subscript.kind == Subscript::Kind::kRange && subscript.range.step == 0) {
      ThrowInvalidArgument(absl::StrCat("Op [index]: a range of axis ", axis, " of shape ",
                                        shape.ToString(), " has step 0, expected another"));
    }
    axis += AxesOf(subscript);
  }
}

}  // namespace

bool Subscript::is_mask_of_rank_0() const {
  return kind == Kind::kArray && array->dtype() == DType::kBool && array->rank() == 0;
}

void Subscript::ThrowTooLarge(uint64_t index) {
  ThrowInvalidArgument(absl::StrCat("Op [index]: ", index, ", expected at most ", INT64_MAX));
}

std::vector<Subscript> CompleteSubscripts(const Shape& shape,
                                          absl::Span<const Subscript> subscripts) {
  int named = 0, ellipses = 0;
  for (const Subscript& subscript : subscripts) {
    named += AxesOf(subscript);
    ellipses += subscript.kind == Subscript::Kind::kEllipsis;
  }
  if (ellipses > 1) {
    ThrowInvalidArgument(
        absl::StrCat("Op [index]: found ", ellipses, " ellipses, expected at most 1"));
  }
  if (named > shape.rank()) {
    ThrowInvalidArgument(absl::StrCat("Op [index]: subscripts stand for ", named,
                                      " axes, expected at most ", shape.rank(), ", those of shape ",
                                      shape.ToString()));
  }
  std::vector<Subscript> complete;
  const auto add_rest = [&] {
    for (int i = named; i < shape.rank(); ++i) complete.emplace_back(WholeAxis());
  };
  for (const Subscript& subscript : subscripts) {
    if (subscript.kind == Subscript::Kind::kEllipsis && named < shape.rank()) {
      add_rest();
    } else {
      complete.push_back(subscript);
    }
  }
  if (ellipses == 0) add_rest();
  CheckNumbers(shape, complete);
  return complete;
}

NDArray NDArray::Subscripted(absl::Span<const Subscript> subscripts) const {
  for (const Subscript& subscript : subscripts) {
    if (subscript.kind == Subscript::Kind::kArray) {
      ThrowInvalidArgument(
          "Op [index]: a mask or an index array, expected numbers and ranges: what these select is "
          "no view but a Selection");
    }
  }
  return ByNumbersAndRanges(subscripts);
}

NDArray NDArray::ByNumbersAndRanges(absl::Span<const Subscript> subscripts) const {
  CheckAlive("index", "X");
  NDArray view = *this;
  const std::vector<Subscript> complete = CompleteSubscripts(shape_, subscripts);
  // Numbers take their axes away before new ones come, of which there may be no room beside them.
  int axis = 0;
  for (const Subscript& subscript : complete) {
    if (subscript.kind == Subscript::Kind::kIndex) {
      view = Numbered(view, axis, subscript.index());
    } else if (subscript.kind == Subscript::Kind::kRange) {
      ++axis;
    } else if (subscript.kind != Subscript::Kind::kNewAxis) {
      axis += AxesOf(subscript);
    }
  }
  axis = 0;
  for (const Subscript& subscript : complete) {
    switch (subscript.kind) {
      case Subscript::Kind::kIndex:
        break;
      case Subscript::Kind::kRange:
        view = Ranged(view, axis++, subscript.range);
        break;
      case Subscript::Kind::kNewAxis:
        view = view.ExpandDims(axis++);
        break;
      default:  // An ellipsis for no axis; an array: the axes it stands for stay, for Selection.
        if (subscript.is_mask_of_rank_0()) view = view.ExpandDims(axis++);
        axis += AxesOf(subscript);
        break;
    }
  }
  return view;
}

}  // namespace tidepool
