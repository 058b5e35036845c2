// Subscripts of arrays, as NumPy's between brackets:
//
//   x(0, Range(1, 5, 2), All(), -1)    x[0, 1:5:2, :, -1]      a view
//   x(Ellipsis(), NewAxis())           x[..., np.newaxis]      a view
//   x(Range({}, {}, -1))               x[::-1]                 a view
//   x(x > 0), x(rows, All())           x[x > 0], x[rows, :]    a copy: what it selects has no strides
//   x(1, All()) = y; x(x < 0) = 0;     writes the elements, of views and selections
//
// Rules and shapes are NumPy's. Numbers count from the end when they are negative, and must be there. Ranges
// are cut off at the ends. Axes that are not named come as a whole. Index arrays (integers, of any
// shape) and
// masks (bool, of the shape of the axes they stand for; of rank 0 for a new axis, of one element or none) broadcast with one another; their axes come where the
// first of them stands, or first where something stands between them (numbers beside arrays count as arrays).
//
// Errors: kInvalidArgument naming the subscript, what was found and what is expected.
#ifndef TIDEPOOL_NDARRAY_SUBSCRIPT_H_
#define TIDEPOOL_NDARRAY_SUBSCRIPT_H_

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {

class NDArray;
class Scalar;
class Selection;

// From `begin` up to but without `end` by `step`, which is not 0; as Python's slices: none is the end that the
// step comes from or goes to.
struct Range {
  Range(std::optional<int64_t> begin_ = {}, std::optional<int64_t> end_ = {},
        int64_t step_ = 1)  // NOLINT
      : begin(begin_), end(end_), step(step_) {}
  std::optional<int64_t> begin, end;  // none: as far as the axis goes
  int64_t step;                       // negative: backwards
};

// What stands for no numbers: a whole axis, as All() writes it; and as the lines below say.
struct WholeAxis {};
inline WholeAxis All() { return {}; }
struct NewAxis {};   // an axis of size 1 comes in
struct Ellipsis {};  // as many whole axes as are left; at most one

// One of them. Does not own an array: for the length of a call.
class Subscript {
 public:
  // What it was made of; ranges and whole axes are both kRange.
  enum class Kind : uint8_t { kIndex, kRange, kNewAxis, kEllipsis, kArray };

  // Throws kInvalidArgument for an unsigned number above 2^63 - 1: it is no index from the end.
  template <std::integral T>
  requires(!std::is_same_v<T, bool>) Subscript(T index)
      : kind(Kind::kIndex), range(Checked(index)) {}                          // NOLINT
  Subscript(Range r) : kind(Kind::kRange), range(r) {}                        // NOLINT
  Subscript(WholeAxis) : kind(Kind::kRange) {}                                // NOLINT
  Subscript(NewAxis) : kind(Kind::kNewAxis) {}                                // NOLINT
  Subscript(Ellipsis) : kind(Kind::kEllipsis) {}                              // NOLINT
  Subscript(const NDArray& indices) : kind(Kind::kArray), array(&indices) {}  // NOLINT
  Subscript(const Selection&) = delete;  // which would not live as long: make it an NDArray first

  // `index` as i64; throws as the constructor.
  template <std::integral T>
  static int64_t Checked(T index) {
    if (!std::in_range<int64_t>(+index)) ThrowTooLarge(static_cast<uint64_t>(index));
    return static_cast<int64_t>(index);
  }
  [[noreturn]] static void ThrowTooLarge(uint64_t index);  // kInvalidArgument

  int64_t index() const { return *range.begin; }  // of kIndex, as given: negative from the end
  bool is_mask_of_rank_0() const;                 // a bool array of one element: a new axis

  const Kind kind;                       // says which of the others is meant
  const Range range;                     // of kIndex: begins there
  const NDArray* const array = nullptr;  // of kArray; the caller's
};

// `subscripts` with whole axes for an ellipsis and for what was not named: each stands for one axis of
// `shape`, masks for as many as they have, NewAxis for none, as an ellipsis that is left for none. Throws kInvalidArgument where there are too many, or two
// ellipses.
std::vector<Subscript> CompleteSubscripts(const Shape& shape,
                                          absl::Span<const Subscript> subscripts);

// `x(mask)`, `x(rows, All())`: a selection of an array's elements by masks and index arrays. It converts to an
// array, a copy in the current place, and writes to the selected elements where it is assigned to. Of an index that
// comes twice the last value stays. Keeps its arrays. Cost: a pass over the indices on the host; a write also
// one over the part of the array that the other subscripts leave.
class [[nodiscard]] Selection {
 public:
  Selection(const NDArray& array, absl::Span<const Subscript> subscripts);
  ~Selection();
  Selection(const Selection&) = delete;

  NDArray Get() const;       // the copy; throws as Gather
  operator NDArray() const;  // NOLINT: reads as an array

  // Values broadcast to the selection's shape and are converted to the array's type.
  void operator=(const NDArray& values);
  void operator=(const Scalar& value);
  void operator=(const Selection& values);
  void operator+=(const NDArray& values);
  void operator-=(const NDArray& values);
  void operator*=(const NDArray& values);
  void operator/=(const NDArray& values);
  void operator+=(const Scalar& value);
  void operator-=(const Scalar& value);
  void operator*=(const Scalar& value);
  void operator/=(const Scalar& value);

 private:
  NDArray Flat() const;
  template <typename Function>
  void Change(const Function& function);

  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_SUBSCRIPT_H_
