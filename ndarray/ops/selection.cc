// Selections by masks and index arrays (subscript.h), and writes to what a call has returned.
//
// A selection moves the axes that arrays stand for to the front, joins them to one and names each selected place of
// it by a number: reading is Gather by these, writing a choice between the old elements and gathered new ones.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/pointwise.h"
#include "tidepool/ndarray/ops/scalar_operand.h"
#include "tidepool/ndarray/subscript.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

// `array`, or a copy on `device` for the length of a call: nobody's, whatever manager is entered.
NDArray ScratchOn(Device device, const NDArray& array) {
  return array.device() == device ? array : array.CopyTo(Place::Scratch(device));
}

// A dense i64 copy of an index array on the host.
NDArray IndicesOnHost(const NDArray& indices, const Shape& shape) {
  NDArray dense(shape, DType::kInt64, Place::Scratch(Host()));
  CopyInto(ScratchOn(Host(), indices).BroadcastTo(shape), dense);
  return dense;
}

// For each axis of a mask the places that are true, in row-major order.
void AddPlaces(const NDArray& mask, std::vector<NDArray>* places) {
  const NDArray dense = IndicesOnHost(mask, mask.shape());
  const int64_t* const values = dense.NumElements() > 0 ? dense.data<int64_t>() : nullptr;
  const int64_t size = dense.NumElements(), count = std::count(values, values + size, 1);
  const size_t first = places->size();
  for (int axis = 0; axis < mask.rank(); ++axis) {
    places->push_back(NDArray({count}, DType::kInt64, Place::Scratch(Host())));
  }
  if (count == 0) return;
  int64_t inner = 1;  // elements below one of the axis
  for (int axis = mask.rank() - 1; axis >= 0; --axis) {
    int64_t* place = (*places)[first + axis].mutable_data<int64_t>();
    for (int64_t i = 0; i < size; ++i) {
      if (values[i] != 0) *place++ = i / inner % mask.shape()[axis];
    }
    inner *= mask.shape()[axis];
  }
}

// What is assigned to elements of that shape, as a view of it. As NumPy, axes of one element beyond its rank go.
NDArray BroadcastValues(const NDArray& values, const Shape& shape, const char* op) {
  NDArray view = values;
  while (view.rank() > shape.rank() && view.shape()[0] == 1) view = view.Squeeze(0);
  if (BroadcastShapes(op, view.shape(), shape) != shape) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: values have shape ",
                                      values.shape().ToString(),
                                      ", expected one that broadcasts to ", shape.ToString()));
  }
  return view.BroadcastTo(shape);
}

// Of one subscript that is an array, which stands for the axes of `shape` from `first` on: an index array for each.
// Returns for how many.
int AddIndices(const NDArray& given, const Shape& shape, int first, std::vector<NDArray>* indices) {
  given.CheckAlive("index", "indices");
  if (IsInteger(given.dtype())) {
    indices->push_back(given);
    return 1;
  }
  if (given.dtype() != DType::kBool) {
    ThrowInvalidArgument(absl::StrCat("Op [index]: indices are ", DTypeName(given.dtype()),
                                      ", expected integers, or bool for a mask"));
  }
  for (int i = 0; i < given.rank(); ++i) {
    if (given.shape()[i] == shape[first + i]) continue;
    ThrowInvalidArgument(absl::StrCat("Op [index]: a mask of shape ", given.shape().ToString(),
                                      " stands for axis ", first, " and later of shape ",
                                      shape.ToString(), "; expected the same sizes"));
  }
  AddPlaces(given.rank() > 0 ? given : given.Reshape({1}), indices);
  return given.rank();
}

// [size, rest..]
Shape FlatOf(int64_t size, absl::Span<const int64_t> rest) {
  std::vector<int64_t> dims = {size};
  dims.insert(dims.end(), rest.begin(), rest.end());
  return Shape(dims);
}

bool IsSameView(const NDArray& a, const NDArray& b) {
  return a.raw_data() == b.raw_data() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::equal(a.strides(), a.strides() + a.rank(), b.strides());
}

}  // namespace

NDArray Apart(const NDArray& values, const NDArray& from) {
  if (!values.is_defined() || !from.is_defined() || values.NumElements() == 0 ||
      from.NumElements() == 0 || IsSameView(values, from) || !ViewsOverlap(values, from)) {
    return values;
  }
  NDArray copy(values.shape(), values.dtype(), Place::Scratch(values.device()));
  CopyInto(values, copy);
  return copy;
}

// ---- what is selected -----------------------------------------------------------------------------

struct Selection::State {
  NDArray moved;       // the array without what other subscripts leave out, axes of arrays first
  NDArray places;      // i64 of the selection's own axes: numbers among those of the joined axes
  int array_axes = 0;  // of moved
  int begin = 0;       // the first of the selection's own axes in its shape
  std::vector<int64_t> joined;  // the sizes of the joined axes

  // The sizes of moved without the joined axes.
  absl::Span<const int64_t> rest() const { return moved.shape().span().subspan(array_axes); }
  // The order of axes that the selection has, of those of places and then the rest.
  std::vector<int> Order() const {
    const int rank = places.rank() + moved.rank() - array_axes;
    std::vector<int> order;
    for (int i = 0; i < rank; ++i) {
      if (i < begin) {
        order.push_back(places.rank() + i);
      } else {
        order.push_back(i < begin + places.rank() ? i - begin : i);
      }
    }
    return order;
  }
};

Selection::Selection(const NDArray& array, absl::Span<const Subscript> subscripts)
    : state_(std::make_unique<State>()) {
  const NDArray view = array.ByNumbersAndRanges(subscripts);
  const std::vector<Subscript> complete = CompleteSubscripts(array.shape(), subscripts);
  // Axes of arrays in the view, and their indices.
  std::vector<int> axes, order;
  std::vector<NDArray> indices;
  int axis = 0, from = 0, groups = 0;
  bool in_group = false;
  for (const Subscript& subscript : complete) {
    const bool is_array = subscript.kind == Subscript::Kind::kArray;
    if (is_array || subscript.kind == Subscript::Kind::kIndex) {
      if (!in_group && ++groups == 1) state_->begin = axis;
      in_group = true;
    } else {
      in_group = false;
    }
    if (subscript.kind == Subscript::Kind::kIndex) ++from;
    if (subscript.kind == Subscript::Kind::kNewAxis) ++axis;
    if (subscript.kind == Subscript::Kind::kRange) ++axis, ++from;
    if (!is_array) continue;
    const int count = AddIndices(*subscript.array, array.shape(), from, &indices);
    for (int i = 0; i < std::max(count, 1); ++i) axes.push_back(axis++);
    from += count;
  }
  if (groups > 1) state_->begin = 0;
  order = axes;
  for (int i = 0; i < view.rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) order.push_back(i);
  }
  state_->moved = view.Transpose(order);
  state_->array_axes = static_cast<int>(axes.size());
  for (const int i : axes) state_->joined.push_back(view.shape()[i]);

  Shape shape;
  for (const NDArray& one : indices) shape = BroadcastShapes("index", shape, one.shape());
  state_->places = Zeros(shape, DType::kInt64, Place::Scratch(Host()));
  const int64_t count = shape.NumElements();
  int64_t* const places = count > 0 ? state_->places.mutable_data<int64_t>() : nullptr;
  for (size_t k = 0; k < indices.size(); ++k) {
    const int64_t size = state_->joined[k];
    // Where another one is empty, so that nothing is selected, they are looked at as they are.
    const NDArray dense = IndicesOnHost(indices[k], count > 0 ? shape : indices[k].shape());
    const int64_t found = dense.NumElements();
    const int64_t* const values = found > 0 ? dense.data<int64_t>() : nullptr;
    for (int64_t i = 0; i < found; ++i) {
      const int64_t at = values[i] < 0 ? values[i] + size : values[i];
      if (at < 0 || at >= size) {
        ThrowInvalidArgument(absl::StrCat("Op [index]: index ", values[i], " at position ", i,
                                          " of an index array, expected ", -size, " to ",
                                          size - 1));
      }
      if (places != nullptr) places[i] = places[i] * size + at;
    }
  }
}

Selection::~Selection() = default;

NDArray Selection::Get() const {
  return Gather(Flat(), ScratchOn(state_->moved.device(), state_->places), 0)
      .Transpose(state_->Order());
}

// With the joined axes as one: a view where strides can walk it.
NDArray Selection::Flat() const {
  const NDArray& moved = state_->moved;
  const Shape shape = FlatOf(Shape(state_->joined).NumElements(), state_->rest());
  NDArray flat;
  if (moved.ViewAs(shape, &flat)) return flat;
  flat = NDArray(shape, moved.dtype(), Place::Scratch(moved.device()));
  flat.Reshape(moved.shape()) = moved;
  return flat;
}

// The selection in scratch: nobody's, whosever the array is, so that nothing of it stays or is refused.
template <typename Function>
void Selection::Change(const Function& function) {
  const State& state = *state_;
  const Device device = state.moved.device();
  std::vector<int64_t> dims(state.places.shape().span().begin(), state.places.shape().span().end());
  dims.insert(dims.end(), state.rest().begin(), state.rest().end());
  NDArray selected(Shape(dims), state.moved.dtype(), Place::Scratch(device));
  GatherInto(Flat(), ScratchOn(device, state.places), 0, selected);
  NDArray changed = selected.Transpose(state.Order());
  function(changed);
  *this = changed;
}

Selection::operator NDArray() const { return Get(); }

void Selection::operator=(const NDArray& values) {
  const State& state = *state_;
  values.CheckAlive("index", "values");
  // The selection's shape, and the values with its own axes first.
  const std::vector<int> order = state.Order();
  std::vector<int64_t> dims, back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const int own = state.places.rank();
    dims.push_back(order[i] < own ? state.places.shape()[order[i]] : state.rest()[order[i] - own]);
    back[order[i]] = static_cast<int64_t>(i);
  }
  const NDArray fitting = BroadcastValues(values, Shape(dims), "index");
  const int64_t count = state.places.NumElements();
  if (count == 0 || state.moved.NumElements() == 0) return;
  NDArray moved = state.moved;
  const NDArray apart = Apart(fitting, moved);

  const Shape joined(state.joined);
  const int64_t size = joined.NumElements();
  NDArray chosen = Zeros({size}, DType::kBool, Place::Scratch(Host()));
  NDArray source = Zeros({size}, DType::kInt64, Place::Scratch(Host()));
  bool* const is_chosen = chosen.mutable_data<bool>();
  int64_t* const from = source.mutable_data<int64_t>();
  const int64_t* const places = state.places.data<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    is_chosen[places[i]] = true;
    from[places[i]] = i;
  }
  std::vector<int> axes(back.begin(), back.end());
  std::vector<int64_t> listed = {count}, spread = state.joined, whole = state.joined;
  for (const int64_t one : state.rest()) {
    listed.push_back(one);
    spread.push_back(1);
    whole.push_back(one);
  }
  const Device device = moved.device();
  NDArray list(Shape(listed), moved.dtype(), Place::Scratch(device));
  const NDArray in_order = apart.Transpose(axes);
  list.Reshape(in_order.shape()) = in_order;
  NDArray gathered(Shape(whole), moved.dtype(), Place::Scratch(device));
  NDArray rows = gathered.Reshape(FlatOf(size, state.rest()));
  GatherInto(list, ScratchOn(device, source), 0, rows);
  WhereInto(ScratchOn(device, chosen).Reshape(Shape(spread)), gathered, moved, moved);
}

void Selection::operator=(const Scalar& value) {
  CheckFits("index", "value", value, state_->moved.dtype());
  *this = ScalarOperand(value, state_->moved.dtype(), state_->moved);
}
void Selection::operator=(const Selection& values) { *this = values.Get(); }
void Selection::operator+=(const NDArray& values) {
  Change([&](NDArray& selected) { selected += values; });
}
void Selection::operator-=(const NDArray& values) {
  Change([&](NDArray& selected) { selected -= values; });
}
void Selection::operator*=(const NDArray& values) {
  Change([&](NDArray& selected) { selected *= values; });
}
void Selection::operator/=(const NDArray& values) {
  Change([&](NDArray& selected) { selected /= values; });
}
void Selection::operator+=(const Scalar& value) {
  Change([&](NDArray& selected) { selected += value; });
}
void Selection::operator-=(const Scalar& value) {
  Change([&](NDArray& selected) { selected -= value; });
}
void Selection::operator*=(const Scalar& value) {
  Change([&](NDArray& selected) { selected *= value; });
}
void Selection::operator/=(const Scalar& value) {
  Change([&](NDArray& selected) { selected /= value; });
}

// ---- writes to views ------------------------------------------------------------------------------

void NDArray::operator=(const NDArray& values) && {
  CheckAlive("assign", "Z");
  values.CheckAlive("assign", "X");
  const NDArray fitting = BroadcastValues(values, shape_, "assign");
  if (NumElements() > 0 && !IsSameView(fitting, *this)) CopyInto(Apart(fitting, *this), *this);
}

void NDArray::operator=(const Scalar& value) && {
  CheckAlive("assign", "Z");
  CheckFits("assign", "X", value, dtype_);
  FillInto(value, *this);
}

}  // namespace tidepool
