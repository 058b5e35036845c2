#include "tidepool/ndarray/ops/indexing.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {
namespace {

template <typename Index>
void CheckIndexValues(const char* op, const NDArray& indices, int64_t size) {
  int64_t strides[1][kMaxRank];
  BroadcastStrides(indices.rank(), indices.shape().dims(), indices.strides(), indices.rank(),
                   strides[0]);
  const auto* values = reinterpret_cast<const Index*>(indices.raw_data());
  int64_t before = 0;
  ForEachRun<1>(indices.rank(), indices.shape().dims(), strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  const Index* run = values + offset[0];
                  bool inside = true;
                  for (int64_t i = 0; i < count; ++i) {
                    // As unsigned a negative one is large.
                    inside &= static_cast<uint64_t>(int64_t{run[i * stride[0]]}) <
                              static_cast<uint64_t>(size);
                  }
                  for (int64_t i = 0; !inside && i < count; ++i) {
                    const int64_t index = run[i * stride[0]];
                    if (index >= 0 && index < size) continue;
                    ThrowInvalidArgument(absl::StrCat(
                        "Op [", op, "]: index ", index, " at position ", before + i,
                        size == 0 ? ", but there is nothing to choose from"
                                  : absl::StrCat(", expected 0 to ", size - 1)));
                  }
                  before += count;
                });
}

void CheckIndices(OpCode op, const NDArray& indices, int64_t size) {
  const char* name = Info(op).name;
  if (indices.dtype() != DType::kInt64 && indices.dtype() != DType::kInt32) {
    ThrowInvalidArgument(absl::StrCat("Op [", name, "]: indices is ", DTypeName(indices.dtype()),
                                      ", expected i64 or i32"));
  }
  if (indices.device() != Host()) return CheckIndices(op, indices.To(Host()), size);
  VisitIndexType(indices.dtype(),
                 [&](auto index) { CheckIndexValues<decltype(index)>(name, indices, size); });
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

NDArray GatherGrad(const NDArray& dz, const NDArray& indices, const Shape& x_shape, int axis) {
  CheckOperands(OpCode::kScatterAdd, {&dz, &indices});
  axis = NormalizeAxis("scatter_add", axis, x_shape.rank());
  CheckShape("scatter_add", "updates", dz,
             GatheredShape(OpCode::kScatterAdd, x_shape, axis, indices.shape()));
  NDArray dx = Zeros(x_shape, dz.dtype(), Place::CurrentOn(dz.device()));
  ScatterAddInto(dz, indices, axis, dx);
  return dx;
}

NDArray OneHot(const NDArray& indices, int64_t depth, DType dtype, double on, double off) {
  CheckOperands(OpCode::kOneHot, {&indices});
  if (depth < 0) {
    ThrowInvalidArgument(absl::StrCat("Op [one_hot]: depth is ", depth, ", expected at least 0"));
  }
  if (indices.rank() == kMaxRank) {
    ThrowInvalidArgument(absl::StrCat("Op [one_hot]: indices has shape ", indices.shape().ToString(),
                                      ", expected at most rank ", kMaxRank - 1));
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
