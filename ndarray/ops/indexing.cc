#include "tidepool/ndarray/ops/indexing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/pointwise.h"
#include "tidepool/ndarray/value_checks.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

// `by_kernel`: where the device's kernel looks at them, and there is work for it, that is enough.
void CheckIndices(OpCode op, const NDArray& indices, int64_t size, bool by_kernel = true) {
  const char* name = Info(op).name;
  if (indices.dtype() != DType::kInt64 && indices.dtype() != DType::kInt32) {
    ThrowInvalidArgument(absl::StrCat("Op [", name, "]: indices is ", DTypeName(indices.dtype()),
                                      ", expected i64 or i32"));
  }
  if (!by_kernel || size == 0 || !IsCheckedByKernels(indices)) CheckIndexValues(op, indices, size);
}

// `shape` with `axis` replaced by the shape of indices.
Shape GatheredShape(OpCode op, const Shape& shape, int axis, const Shape& indices) {
  const int rank = shape.rank() - 1 + indices.rank();
  if (rank > kMaxRank) {
    ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: an array of shape ",
                                      shape.ToString(), " by indices of shape ", indices.ToString(),
                                      " has rank ", rank, ", expected at most ", kMaxRank));
  }
  int64_t dims[kMaxRank];
  int count = 0;
  for (int i = 0; i < axis; ++i) dims[count++] = shape[i];
  for (int i = 0; i < indices.rank(); ++i) dims[count++] = indices[i];
  for (int i = axis + 1; i < shape.rank(); ++i) dims[count++] = shape[i];
  return Shape(absl::Span<const int64_t>(dims, count));
}

int CheckGather(const NDArray& x, const NDArray& indices, int axis) {
  CheckOperands(OpCode::kGather, {&x, &indices});
  axis = NormalizeAxis("gather", axis, x.rank());
  CheckIndices(OpCode::kGather, indices, x.dim(axis));
  return axis;
}

// ---- one element for each index ---------------------------------------------------------------------

// The elements of an array and what lies between them, as one axis, and the strides that walk them there.
struct Window {
  NDArray elements;
  int64_t first = 0;  // the place of the array's first element
  int64_t strides[kMaxRank] = {};
};

Window WindowOf(const NDArray& x) {
  const auto [begin, end] = ExtentOf(x);
  const auto bytes = static_cast<int64_t>(DTypeBytes(x.dtype()));
  const int64_t before = begin - x.buffer()->data;
  Window window;
  if (before % bytes != 0) {  // imported
    const NDArray copy = x.CopyTo(Place::Scratch(x.device()));
    return WindowOf(copy);
  }
  window.elements =
      NDArray::FromStrides(x.buffer(), before / bytes, {(end - begin) / bytes}, {1}, x.dtype());
  window.first = (x.raw_data() - begin) / bytes;
  std::copy_n(x.strides(), x.rank(), window.strides);
  return window;
}

// Of what is gathered or scattered; `axis` becomes the axis counted from the first.
Shape PerElementShape(OpCode op, const char* operand, const NDArray& x, const NDArray& indices,
                      int* axis) {
  const char* name = Info(op).name;
  if (x.rank() != indices.rank() || x.rank() == 0) {
    ThrowInvalidArgument(absl::StrCat(
        "Op [", name, "]: indices has shape ", indices.shape().ToString(), ", ", operand,
        " has shape ", x.shape().ToString(), "; expected the same rank of at least 1"));
  }
  *axis = NormalizeAxis(name, *axis, x.rank());
  int64_t dims[kMaxRank];
  for (int i = 0; i < x.rank(); ++i) {
    const int64_t size = x.dim(i), other = indices.dim(i);
    if (i != *axis && size != other && size != 1 && other != 1) {
      ThrowInvalidArgument(absl::StrCat("Op [", name, "]: indices has shape ",
                                        indices.shape().ToString(), ", ", operand, " has shape ",
                                        x.shape().ToString(), "; sizes ", other, " and ", size,
                                        " of axis ", i, " do not broadcast"));
    }
    dims[i] = i == *axis || size == 1 ? other : size;
  }
  CheckIndices(op, indices, x.dim(*axis), /*by_kernel=*/x.rank() == 1 && op == OpCode::kGather);
  return Shape(absl::Span<const int64_t>(dims, x.rank()));
}

// For each element of `shape` where in the window of x its index says. On x's device.
NDArray Places(const NDArray& x, int axis, const NDArray& indices, const Shape& shape,
               const Window& window) {
  if (indices.device() != Host())
    return Places(x, axis, indices.CopyTo(Place::Scratch(Host())), shape, window);
  NDArray places(shape, DType::kInt64, Place::Scratch(Host()));
  int64_t strides[3][kMaxRank];
  BroadcastStrides(indices.rank(), indices.shape().dims(), indices.strides(), shape.rank(),
                   strides[0]);
  BroadcastStrides(x.rank(), x.shape().dims(), window.strides, shape.rank(), strides[1]);
  strides[1][axis] = 0;
  shape.SetDenseStrides(strides[2]);
  const int64_t step = window.strides[axis], first = window.first;
  VisitIndexType(indices.dtype(), [&](auto type) {
    const auto* from = reinterpret_cast<const decltype(type)*>(indices.raw_data());
    int64_t* to = reinterpret_cast<int64_t*>(places.raw_data());
    ForEachRun<3>(shape.rank(), shape.dims(), strides,
                  [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                    for (int64_t i = 0; i < count; ++i) {
                      to[offset[2] + i * stride[2]] =
                          first + offset[1] + i * stride[1] +
                          step * int64_t{from[offset[0] + i * stride[0]]};
                    }
                  });
  });
  return x.device() == Host() ? places : places.CopyTo(Place::Scratch(x.device()));
}

void GatherElements(const NDArray& x, int axis, const NDArray& indices, NDArray& z) {
  if (z.NumElements() == 0) return;
  const AxisAttributes flat{0};
  if (x.rank() == 1) return Dispatch(OpCode::kGather, {&x, &indices}, {&z}, &flat);
  const Window window = WindowOf(x);
  const NDArray places = Places(x, axis, indices, z.shape(), window);
  Dispatch(OpCode::kGather, {&window.elements, &places}, {&z}, &flat);
}

Shape CheckScatter(int* axis, const NDArray& indices, const NDArray& updates,
                   ScatterReduction reduction, const NDArray& target) {
  CheckOperands(OpCode::kScatter, {&updates});
  target.CheckAlive("scatter", "target");
  indices.CheckAlive("scatter", "indices");
  CheckDType("scatter", "updates", updates, target.dtype());
  if (target.dtype() == DType::kBool &&
      (reduction == ScatterReduction::kAdd || reduction == ScatterReduction::kMultiply)) {
    ThrowInvalidArgument(
        "Op [scatter]: target is bool, expected a number type to add or multiply; kMax is or, kMin "
        "and");
  }
  const Shape shape = PerElementShape(OpCode::kScatter, "target", target, indices, axis);
  if (updates.rank() > shape.rank() ||
      BroadcastShapes("scatter", updates.shape(), shape) != shape) {
    ThrowInvalidArgument(absl::StrCat("Op [scatter]: updates has shape ",
                                      updates.shape().ToString(),
                                      ", expected one that broadcasts to ", shape.ToString()));
  }
  return shape;
}

void ScatterElements(int axis, const NDArray& indices, const NDArray& updates,
                     ScatterReduction reduction, const Shape& shape, NDArray& target) {
  if (shape.NumElements() == 0) return;
  Window window = WindowOf(target);
  const NDArray places = Places(target, axis, indices, shape, window);
  const NDArray apart = Apart(updates, window.elements).BroadcastTo(shape);
  // Devices have kernels for these; on the host each element by itself is faster one after the other.
  if (target.device() != Host() && reduction == ScatterReduction::kAdd &&
      Contains(Info(OpCode::kScatterAdd).types, target.dtype())) {
    const AxisAttributes flat{0};
    return Dispatch(OpCode::kScatterAdd, {&apart, &places}, {&window.elements}, &flat);
  }
  const ScatterAttributes attributes{reduction};
  Dispatch(OpCode::kScatter, {&apart, &places}, {&window.elements}, &attributes);
}

void CheckTriangle(const NDArray& x) {
  CheckOperands(OpCode::kTriangle, {&x});
  if (x.rank() >= 2) return;
  ThrowInvalidArgument(absl::StrCat("Op [triangle]: X has shape ", x.shape().ToString(),
                                    ", expected at least rank 2"));
}

void TriangleInto(const NDArray& x, const TriangleAttributes& attributes, NDArray& z) {
  CheckTriangle(x);
  z.CheckAlive("triangle", "Z");
  CheckDType("triangle", "Z", z, x.dtype());
  CheckShape("triangle", "Z", z, x.shape());
  Dispatch(OpCode::kTriangle, {&x}, {&z}, &attributes);
}

NDArray Triangle(const NDArray& x, const TriangleAttributes& attributes) {
  CheckTriangle(x);
  NDArray z(x.shape(), x.dtype(), ResultPlace(OpCode::kTriangle, {&x}));
  Dispatch(OpCode::kTriangle, {&x}, {&z}, &attributes);
  return z;
}

}  // namespace

NDArray Gather(const NDArray& x, const NDArray& indices, int axis) {
  const AxisAttributes attributes{CheckGather(x, indices, axis)};
  NDArray z(GatheredShape(OpCode::kGather, x.shape(), attributes.axis, indices.shape()), x.dtype(),
            ResultPlace(OpCode::kGather, {&x, &indices}));
  Dispatch(OpCode::kGather, {&x, &indices}, {&z}, &attributes);
  return z;
}

void GatherInto(const NDArray& x, const NDArray& indices, int axis, NDArray& z) {
  const AxisAttributes attributes{CheckGather(x, indices, axis)};
  z.CheckAlive("gather", "Z");
  CheckDType("gather", "Z", z, x.dtype());
  CheckShape("gather", "Z", z,
             GatheredShape(OpCode::kGather, x.shape(), attributes.axis, indices.shape()));
  Dispatch(OpCode::kGather, {&x, &indices}, {&z}, &attributes);
}

void ScatterAddInto(const NDArray& updates, const NDArray& indices, int axis, NDArray& z) {
  CheckOperands(OpCode::kScatterAdd, {&updates, &indices});
  z.CheckAlive("scatter_add", "Z");
  const AxisAttributes attributes{NormalizeAxis("scatter_add", axis, z.rank())};
  if (!Contains(Info(OpCode::kScatterAdd).types, z.dtype())) {
    ThrowInvalidArgument(absl::StrCat("Op [scatter_add]: Z is ", DTypeName(z.dtype()),
                                      ", expected f32, f64, i32 or i64"));
  }
  CheckDType("scatter_add", "updates", updates, z.dtype());
  CheckShape("scatter_add", "updates", updates,
             GatheredShape(OpCode::kScatterAdd, z.shape(), attributes.axis, indices.shape()));
  CheckIndices(OpCode::kScatterAdd, indices, z.dim(attributes.axis));
  if (updates.NumElements() == 0) return;
  Dispatch(OpCode::kScatterAdd, {&updates, &indices}, {&z}, &attributes);
}

NDArray Gather(const NDArray& x, int axis, const NDArray& indices) {
  CheckOperands(OpCode::kGather, {&x, &indices});
  const Shape shape = PerElementShape(OpCode::kGather, "X", x, indices, &axis);
  NDArray z(shape, x.dtype(), ResultPlace(OpCode::kGather, {&x, &indices}));
  GatherElements(x, axis, indices, z);
  return z;
}

void GatherInto(const NDArray& x, int axis, const NDArray& indices, NDArray& z) {
  CheckOperands(OpCode::kGather, {&x, &indices});
  z.CheckAlive("gather", "Z");
  CheckDType("gather", "Z", z, x.dtype());
  CheckShape("gather", "Z", z, PerElementShape(OpCode::kGather, "X", x, indices, &axis));
  if (ViewsOverlap(x, z)) ThrowInvalidArgument("Op [gather]: Z overlaps X");
  GatherElements(x, axis, indices, z);
}

NDArray Scatter(const NDArray& target, int axis, const NDArray& indices, const NDArray& updates,
                ScatterReduction reduction) {
  const Shape shape = CheckScatter(&axis, indices, updates, reduction, target);
  NDArray z(target.shape(), target.dtype(), ResultPlace("scatter", {&target, &indices, &updates}));
  CopyInto(target, z);
  ScatterElements(axis, indices, updates, reduction, shape, z);
  return z;
}

void ScatterInto(int axis, const NDArray& indices, const NDArray& updates,
                 ScatterReduction reduction, NDArray& target) {
  const Shape shape = CheckScatter(&axis, indices, updates, reduction, target);
  if (MayRepeat(target)) {
    ThrowInvalidArgument(absl::StrCat("Op [scatter]: target of shape ", target.shape().ToString(),
                                      " repeats its elements; Dup() makes an array of its own"));
  }
  if (ViewsOverlap(indices, target)) ThrowInvalidArgument("Op [scatter]: indices overlaps target");
  ScatterElements(axis, indices, updates, reduction, shape, target);
}

NDArray GatherGrad(const NDArray& dz, const NDArray& indices, const Shape& x_shape, int axis) {
  CheckOperands(OpCode::kScatterAdd, {&dz, &indices});
  axis = NormalizeAxis("scatter_add", axis, x_shape.rank());
  CheckShape("scatter_add", "updates", dz,
             GatheredShape(OpCode::kScatterAdd, x_shape, axis, indices.shape()));
  const Place place = Place::CurrentOn(ResultPlace(OpCode::kScatterAdd, {&dz, &indices}).device());
  if (IsFloating(dz.dtype()) && !Contains(Info(OpCode::kScatterAdd).types, dz.dtype())) {
    // What is added up over many places keeps more digits than f16 and bf16 have.
    NDArray sums = Zeros(x_shape, DType::kFloat32, place);
    ScatterAddInto(Cast(dz, DType::kFloat32), indices, axis, sums);
    return Cast(sums, dz.dtype());
  }
  NDArray dx = Zeros(x_shape, dz.dtype(), place);
  ScatterAddInto(dz, indices, axis, dx);
  return dx;
}

NDArray OneHot(const NDArray& indices, int64_t depth, DType dtype, double on, double off) {
  CheckOperands(OpCode::kOneHot, {&indices});
  if (depth < 0) {
    ThrowInvalidArgument(absl::StrCat("Op [one_hot]: depth is ", depth, ", expected at least 0"));
  }
  if (indices.rank() == kMaxRank) {
    ThrowInvalidArgument(absl::StrCat("Op [one_hot]: indices has shape ",
                                      indices.shape().ToString(), ", expected at most rank ",
                                      kMaxRank - 1));
  }
  CheckIndices(OpCode::kOneHot, indices, depth);
  int64_t dims[kMaxRank];
  for (int i = 0; i < indices.rank(); ++i) dims[i] = indices.dim(i);
  dims[indices.rank()] = depth;
  NDArray z(Shape(absl::Span<const int64_t>(dims, indices.rank() + 1)), dtype,
            ResultPlace(OpCode::kOneHot, {&indices}));
  const OneHotAttributes attributes{on, off};
  Dispatch(OpCode::kOneHot, {&indices}, {&z}, &attributes);
  return z;
}

NDArray Flip(const NDArray& x, const Axes& axes) {
  CheckOperands(OpCode::kFlip, {&x});
  const FlipAttributes attributes{axes.Mask("flip", x.rank())};
  NDArray z(x.shape(), x.dtype(), ResultPlace(OpCode::kFlip, {&x}));
  Dispatch(OpCode::kFlip, {&x}, {&z}, &attributes);
  return z;
}

NDArray UpperTriangle(const NDArray& x, int64_t diagonal) { return Triangle(x, {true, diagonal}); }
NDArray LowerTriangle(const NDArray& x, int64_t diagonal) { return Triangle(x, {false, diagonal}); }
void UpperTriangleInto(const NDArray& x, int64_t diagonal, NDArray& z) {
  TriangleInto(x, {true, diagonal}, z);
}
void LowerTriangleInto(const NDArray& x, int64_t diagonal, NDArray& z) {
  TriangleInto(x, {false, diagonal}, z);
}

NDArray LowerTriangularMask(int64_t rows, int64_t columns, int64_t diagonal, DType dtype) {
  NDArray mask = Ones({rows, columns}, dtype);
  LowerTriangleInto(mask, diagonal, mask);
  return mask;
}

}  // namespace tidepool
