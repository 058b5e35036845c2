#include "tidepool/ndarray/ops/matmul.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/nn_checks.h"
#include "tidepool/ndarray/ops/pointwise.h"

namespace tidepool {
namespace {

// The type of the result.
DType CheckTypes(const NDArray& x, const NDArray& y, const NDArray* bias) {
  CheckOperands(OpCode::kMatMul, {&x, &y, bias});
  CheckLeastRank("matmul", "X", x, 1);
  CheckLeastRank("matmul", "Y", y, 1);
  const DType dtype = PromoteTypes(x.dtype(), y.dtype());
  CheckNumber(OpCode::kMatMul, dtype);
  if (bias != nullptr) CheckDType("matmul", "bias", *bias, dtype);
  return dtype;
}

Shape Leading(const NDArray& x) {
  return Shape(absl::Span<const int64_t>(x.shape().dims(), x.rank() - 2));
}

// The shape of the product of operands of rank 2 or more.
Shape ResultShape(const NDArray& x, const NDArray& y, const MatMulAttributes& attributes,
                  const NDArray* bias) {
  const int rows = x.rank() - 2, columns = y.rank() - 2;
  const int64_t m = x.dim(rows + (attributes.transpose_x ? 1 : 0));
  const int64_t k = x.dim(rows + (attributes.transpose_x ? 0 : 1));
  const int64_t n = y.dim(columns + (attributes.transpose_y ? 0 : 1));
  const int64_t y_k = y.dim(columns + (attributes.transpose_y ? 1 : 0));
  if (k != y_k) {
    ThrowInvalidArgument(absl::StrCat("Op [matmul]: X has shape ", x.shape().ToString(),
                                      attributes.transpose_x ? " (transposed)" : "",
                                      ", Y has shape ", y.shape().ToString(),
                                      attributes.transpose_y ? " (transposed)" : "",
                                      "; inner sizes ", k, " and ", y_k, " differ"));
  }
  if (bias != nullptr) CheckShape("matmul", "bias", *bias, {n});
  if (rows == 0 && columns == 0) return {m, n};
  const Shape batch = BroadcastShapes("matmul, leading axes", Leading(x), Leading(y));
  int64_t dims[kMaxRank];
  std::copy_n(batch.dims(), batch.rank(), dims);
  dims[batch.rank()] = m;
  dims[batch.rank() + 1] = n;
  return Shape(absl::Span<const int64_t>(dims, batch.rank() + 2));
}

// Operands of which one has rank 1, as matrices.
struct Matrices {
  NDArray x, y;
  MatMulAttributes attributes;
  bool row, column;  // that the result is without

  Matrices(const NDArray& x_in, const NDArray& y_in, const MatMulAttributes& a)
      : x(x_in), y(y_in), attributes(a), row(x.rank() == 1), column(y.rank() == 1) {
    if (row) x = x.ExpandDims(0), attributes.transpose_x = false;
    if (column) y = y.ExpandDims(1), attributes.transpose_y = false;
  }
  NDArray Whole(NDArray z) const {
    if (row) z = z.ExpandDims(column ? z.rank() : z.rank() - 1);
    if (column) z = z.ExpandDims(z.rank());
    return z;
  }
  Shape Left(const Shape& shape) const {
    int64_t dims[kMaxRank];
    int rank = 0;
    for (int i = 0; i < shape.rank(); ++i) {
      if ((i == shape.rank() - 2 && row) || (i == shape.rank() - 1 && column)) continue;
      dims[rank++] = shape[i];
    }
    return Shape(absl::Span<const int64_t>(dims, rank));
  }
};

NDArray Product(const NDArray& x, const NDArray& y, const MatMulAttributes& attributes,
                const NDArray* bias) {
  const Shape shape = ResultShape(x, y, attributes, bias);
  NDArray z(shape, x.dtype(), ResultPlace(OpCode::kMatMul, {&x, &y, bias}));
  Dispatch(OpCode::kMatMul, {&x, &y, bias}, {&z}, &attributes);
  return z;
}

// Of operands that need another type to multiply in than they have.
void ProductOfCasts(const NDArray& x, const NDArray& y, DType type, NDArray& z,
                    const MatMulAttributes& attributes, const NDArray* bias) {
  const NDArray of_x = CastScratch(x, type), of_y = CastScratch(y, type);
  const NDArray of_bias = bias != nullptr ? CastScratch(*bias, type) : NDArray();
  if (bias != nullptr) bias = &of_bias;
  if (z.dtype() == type) return MatMulInto(of_x, of_y, z, attributes, bias);
  NDArray wide(z.shape(), type, Place::Scratch(z.device()));
  if (attributes.accumulate) CopyInto(z, wide);
  // The sign is that of the result, which wraps.
  MatMulAttributes linear = attributes;
  linear.relu = attributes.relu && IsFloating(type);
  MatMulInto(of_x, of_y, wide, linear, bias);
  CopyInto(wide, z);
  if (linear.relu == attributes.relu || IsUnsigned(z.dtype())) return;
  NDArray zero(Shape{}, z.dtype(), Place::Scratch(z.device()));
  FillInto(0, zero);
  MaximumInto(z, zero, z);
}

}  // namespace

NDArray MatMul(const NDArray& x, const NDArray& y, const MatMulAttributes& attributes,
               const NDArray* bias) {
  const DType dtype = CheckTypes(x, y, bias), type = ProductType(dtype);
  if (attributes.accumulate) {
    ThrowInvalidArgument("Op [matmul]: accumulate needs an output array; use MatMulInto");
  }
  if (x.dtype() != type || y.dtype() != type) {
    const Matrices m(x, y, attributes);
    NDArray z(m.Left(ResultShape(m.x, m.y, m.attributes, bias)), dtype,
              ResultPlace(OpCode::kMatMul, {&x, &y, bias}));
    ProductOfCasts(x, y, type, z, attributes, bias);
    return z;
  }
  if (x.rank() > 1 && y.rank() > 1) return Product(x, y, attributes, bias);
  const Matrices m(x, y, attributes);
  const NDArray z = Product(m.x, m.y, m.attributes, bias);
  return z.Reshape(m.Left(z.shape()));
}

void MatMulInto(const NDArray& x, const NDArray& y, NDArray& z, const MatMulAttributes& attributes,
                const NDArray* bias) {
  const DType dtype = CheckTypes(x, y, bias), type = ProductType(dtype);
  z.CheckAlive("matmul", "Z");
  CheckDType("matmul", "Z", z, dtype);
  if (x.dtype() != type || y.dtype() != type)
    return ProductOfCasts(x, y, type, z, attributes, bias);
  if (x.rank() > 1 && y.rank() > 1) {
    CheckShape("matmul", "Z", z, ResultShape(x, y, attributes, bias));
    Dispatch(OpCode::kMatMul, {&x, &y, bias}, {&z}, &attributes);
    return;
  }
  const Matrices m(x, y, attributes);
  CheckShape("matmul", "Z", z, m.Left(ResultShape(m.x, m.y, m.attributes, bias)));
  NDArray whole = m.Whole(z);
  Dispatch(OpCode::kMatMul, {&m.x, &m.y, bias}, {&whole}, &m.attributes);
}

}  // namespace tidepool
