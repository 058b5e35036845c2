#include "tidepool/ndarray/ops/joining.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/operand_checks.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

[[noreturn]] void Refuse(const char* op, const std::string& what) {
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", what));
}

Shape WithSize(const Shape& shape, int axis, int64_t size) {
  int64_t dims[kMaxRank];
  for (int i = 0; i < shape.rank(); ++i) dims[i] = i == axis ? size : shape[i];
  return Shape(absl::Span<const int64_t>(dims, shape.rank()));
}

Shape WithAxis(const Shape& shape, int axis, int64_t size) {
  int64_t dims[kMaxRank];
  for (int i = 0; i < axis; ++i) dims[i] = shape[i];
  dims[axis] = size;
  for (int i = axis; i < shape.rank(); ++i) dims[i + 1] = shape[i];
  return Shape(absl::Span<const int64_t>(dims, shape.rank() + 1));
}

void CheckParts(const char* op, absl::Span<const NDArray> parts) {
  if (parts.empty()) Refuse(op, "no parts, expected at least one");
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i].CheckAlive(op, absl::StrCat("part ", i).c_str());
}

DType TypeOf(absl::Span<const NDArray> parts) {
  absl::InlinedVector<DType, 8> types;  // a steady step calls no malloc
  for (const NDArray& part : parts) types.push_back(part.dtype());
  return PromoteTypes(types);
}

// Of the result; `axis` becomes the axis counted from the first.
Shape ConcatShape(absl::Span<const NDArray> parts, int* axis) {
  CheckParts("concat", parts);
  const Shape& first = parts[0].shape();
  *axis = NormalizeAxis("concat", *axis, first.rank());
  int64_t size = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Shape& shape = parts[i].shape();
    if (shape.rank() != first.rank() || !(WithSize(shape, *axis, first[*axis]) == first)) {
      Refuse("concat",
             absl::StrCat("part ", i, " has shape ", shape.ToString(), ", part 0 has ",
                          first.ToString(), ", expected the same but along axis ", *axis));
    }
    size += shape[*axis];
  }
  return WithSize(first, *axis, size);
}

void CopyParts(absl::Span<const NDArray> parts, int axis, NDArray& z) {
  int64_t begin = 0;
  for (const NDArray& part : parts) {
    NDArray slice = z.Slice(axis, begin, begin + part.dim(axis));
    CopyInto(part, slice);
    begin += part.dim(axis);
  }
}

std::string List(absl::Span<const int64_t> values) {
  return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
}

Shape PaddedShape(const NDArray& x, absl::Span<const int64_t> before,
                  absl::Span<const int64_t> after) {
  x.CheckAlive("pad", "X");
  int64_t dims[kMaxRank];
  for (const auto& [name, sizes] :
       {std::pair<const char*, absl::Span<const int64_t>>("before", before), {"after", after}}) {
    if (static_cast<int>(sizes.size()) != x.rank()) {
      Refuse("pad", absl::StrCat(name, " has ", sizes.size(), " sizes, expected ", x.rank(),
                                 ", the rank of X"));
    }
    for (int i = 0; i < x.rank(); ++i) {
      if (sizes[i] < 0) {
        Refuse("pad", absl::StrCat(name, "[", i, "] is ", sizes[i], ", expected at least 0"));
      }
    }
  }
  for (int i = 0; i < x.rank(); ++i) dims[i] = before[i] + x.dim(i) + after[i];
  return Shape(absl::Span<const int64_t>(dims, x.rank()));
}

}  // namespace

NDArray Concat(absl::Span<const NDArray> parts, int axis) {
  const Shape shape = ConcatShape(parts, &axis);
  NDArray z(shape, TypeOf(parts), ResultPlace("concat", parts));
  CopyParts(parts, axis, z);
  return z;
}

void ConcatInto(absl::Span<const NDArray> parts, int axis, NDArray& z) {
  const Shape shape = ConcatShape(parts, &axis);
  z.CheckAlive("concat", "Z");
  const DType natural = TypeOf(parts);
  if (!IsFloating(natural) || !IsFloating(z.dtype())) CheckDType("concat", "Z", z, natural);
  CheckShape("concat", "Z", z, shape);
  CheckNoRepeats(OpCode::kCopy, z, 0);  // as a whole, before a part is written
  for (size_t i = 0; i < parts.size(); ++i) {
    if (ViewsOverlap(parts[i], z)) Refuse("concat", absl::StrCat("Z overlaps part ", i));
  }
  CopyParts(parts, axis, z);
}

NDArray Stack(absl::Span<const NDArray> parts, int axis) {
  CheckParts("stack", parts);
  const Shape& shape = parts[0].shape();
  if (shape.rank() == kMaxRank) {
    Refuse("stack", absl::StrCat("part 0 has shape ", shape.ToString(), ", expected at most rank ",
                                 kMaxRank - 1));
  }
  axis = NormalizeAxis("stack", axis, shape.rank() + 1);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].shape() == shape) continue;
    Refuse("stack", absl::StrCat("part ", i, " has shape ", parts[i].shape().ToString(),
                                 ", part 0 has ", shape.ToString(), ", expected the same"));
  }
  NDArray z(WithAxis(shape, axis, static_cast<int64_t>(parts.size())), TypeOf(parts),
            ResultPlace("stack", parts));
  for (size_t i = 0; i < parts.size(); ++i) {
    NDArray slice = z.Index(axis, static_cast<int64_t>(i));
    CopyInto(parts[i], slice);
  }
  return z;
}

std::vector<NDArray> Split(const NDArray& x, int64_t count, int axis) {
  x.CheckAlive("split", "X");
  axis = NormalizeAxis("split", axis, x.rank());
  if (count < 1 || x.dim(axis) % count != 0) {
    Refuse("split", absl::StrCat("axis ", axis, " of shape ", x.shape().ToString(),
                                 " cannot be cut into ", count, " equal parts"));
  }
  return Split(x, std::vector<int64_t>(count, x.dim(axis) / count), axis);
}

std::vector<NDArray> Split(const NDArray& x, absl::Span<const int64_t> sizes, int axis) {
  x.CheckAlive("split", "X");
  axis = NormalizeAxis("split", axis, x.rank());
  int64_t left = x.dim(axis);
  bool negative = false;
  for (const int64_t size : sizes) {
    negative = negative || size < 0;
    left -= std::min(std::max<int64_t>(size, 0), left + 1);  // does not overflow
  }
  if (negative || left != 0) {
    Refuse("split",
           absl::StrCat("sizes ", List(sizes), ", expected sizes of at least 0 that add up to ",
                        x.dim(axis), ", the size of axis ", axis));
  }
  std::vector<NDArray> parts;
  parts.reserve(sizes.size());
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(x.Slice(axis, begin, begin + size));
    begin += size;
  }
  return parts;
}

void PadInto(const NDArray& x, absl::Span<const int64_t> before, absl::Span<const int64_t> after,
             double value, NDArray& z) {
  const Shape shape = PaddedShape(x, before, after);
  z.CheckAlive("pad", "Z");
  CheckDType("pad", "Z", z, x.dtype());
  CheckShape("pad", "Z", z, shape);
  CheckNoRepeats(OpCode::kCopy, z, 0);
  if (ViewsOverlap(x, z)) Refuse("pad", "Z overlaps X");
  // What is not yet filled shrinks from z to x's place, one axis after the other.
  NDArray rest = z;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const int64_t begin = before[axis], end = begin + x.dim(axis);
    NDArray head = rest.Slice(axis, 0, begin), tail = rest.Slice(axis, end, rest.dim(axis));
    if (head.NumElements() > 0) FillInto(value, head);
    if (tail.NumElements() > 0) FillInto(value, tail);
    rest = rest.Slice(axis, begin, end);
  }
  CopyInto(x, rest);
}

NDArray Pad(const NDArray& x, absl::Span<const int64_t> before, absl::Span<const int64_t> after,
            double value) {
  NDArray z(PaddedShape(x, before, after), x.dtype(), ResultPlace("pad", {&x}));
  PadInto(x, before, after, value, z);
  return z;
}

NDArray Tile(const NDArray& x, absl::Span<const int64_t> repeats) {
  x.CheckAlive("tile", "X");
  const int rank = std::max(x.rank(), static_cast<int>(repeats.size()));
  if (rank > kMaxRank) {
    Refuse("tile", absl::StrCat(repeats.size(), " repeats, expected at most ", kMaxRank));
  }
  int64_t dims[kMaxRank], times[kMaxRank], padded[kMaxRank];
  for (int i = 0; i < rank; ++i) {
    const int of_x = i - (rank - x.rank()),
              of_repeats = i - (rank - static_cast<int>(repeats.size()));
    padded[i] = of_x < 0 ? 1 : x.dim(of_x);
    times[i] = of_repeats < 0 ? 1 : repeats[of_repeats];
    if (times[i] < 0) {
      Refuse("tile", absl::StrCat("repeats ", List(repeats), ", expected at least 0 of each"));
    }
    dims[i] = times[i] != 0 && padded[i] > INT64_MAX / times[i] ? INT64_MAX : padded[i] * times[i];
  }
  NDArray z(Shape(absl::Span<const int64_t>(dims, rank)), x.dtype(), ResultPlace("tile", {&x}));
  if (z.NumElements() == 0) return z;
  NDArray corner = z;
  for (int i = 0; i < rank; ++i) corner = corner.Slice(i, 0, padded[i]);
  NDArray target = corner;  // without the axes put in front
  for (int i = rank - x.rank(); i > 0; --i) target = target.Index(0, 0);
  CopyInto(x, target);
  // The block that is full grows along one axis after the other, doubling.
  NDArray full = corner;
  for (int axis = rank - 1; axis >= 0; --axis) {
    NDArray lane = z;
    for (int i = 0; i < axis; ++i) lane = lane.Slice(i, 0, padded[i]);
    for (int64_t done = padded[axis]; done < dims[axis];) {
      const int64_t size = std::min(done, dims[axis] - done);
      const NDArray from = lane.Slice(axis, 0, size);
      NDArray to = lane.Slice(axis, done, done + size);
      CopyInto(from, to);
      done += size;
    }
  }
  return z;
}

NDArray Repeat(const NDArray& x, int64_t count, int axis) {
  x.CheckAlive("repeat", "X");
  axis = NormalizeAxis("repeat", axis, x.rank());
  if (count < 0) Refuse("repeat", absl::StrCat("count is ", count, ", expected at least 0"));
  if (count != 0 && x.dim(axis) > INT64_MAX / count) {
    Refuse("repeat", absl::StrCat(count, " times ", x.dim(axis), " slices are too many"));
  }
  NDArray z(WithSize(x.shape(), axis, x.dim(axis) * count), x.dtype(), ResultPlace("repeat", {&x}));
  if (z.NumElements() == 0) return z;
  // [outer, size, count, inner]
  const NDArray dense = x.is_dense() ? x : x.CopyTo(Place::Scratch(x.device()));
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= x.dim(i);
  for (int i = axis + 1; i < x.rank(); ++i) inner *= x.dim(i);
  const NDArray from = dense.Reshape({outer * x.dim(axis), inner});
  const NDArray to = z.Reshape({outer * x.dim(axis), count, inner});
  for (int64_t i = 0; i < count; ++i) {
    NDArray slice = to.Index(1, i);
    CopyInto(from, slice);
  }
  return z;
}

}  // namespace tidepool
