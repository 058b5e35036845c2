#include "tidepool/ndarray/ops/matmul.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {
namespace {

Shape ResultShape(const NDArray& x, const NDArray& y, const MatMulAttributes& attributes,
                  const NDArray* bias) {
  CheckOperands(OpCode::kMatMul, {&x, &y, bias});
  CheckRank("matmul", "X", x, 2);
  CheckRank("matmul", "Y", y, 2);
  CheckDType("matmul", "X", x, DType::kFloat32);
  CheckDType("matmul", "Y", y, DType::kFloat32);
  const int64_t m = x.dim(attributes.transpose_x ? 1 : 0);
  const int64_t k = x.dim(attributes.transpose_x ? 0 : 1);
  const int64_t n = y.dim(attributes.transpose_y ? 0 : 1);
  const int64_t y_k = y.dim(attributes.transpose_y ? 1 : 0);
  if (k != y_k) {
    ThrowInvalidArgument(absl::StrCat(
        "Op [matmul]: X has shape ", x.shape().ToString(),
        attributes.transpose_x ? " (transposed)" : "", ", Y has shape ", y.shape().ToString(),
        attributes.transpose_y ? " (transposed)" : "", "; inner sizes ", k, " and ", y_k, " differ"));
  }
  if (bias != nullptr) {
    CheckShape("matmul", "bias", *bias, {n});
    CheckDType("matmul", "bias", *bias, DType::kFloat32);
  }
  return {m, n};
}

}  // namespace

NDArray MatMul(const NDArray& x, const NDArray& y, const MatMulAttributes& attributes,
               const NDArray* bias) {
  const Shape shape = ResultShape(x, y, attributes, bias);
  if (attributes.accumulate) {
    ThrowInvalidArgument("Op [matmul]: accumulate needs an output array; use MatMulInto");
  }
  NDArray z(shape, DType::kFloat32);
  Dispatch(OpCode::kMatMul, {&x, &y, bias}, {&z}, &attributes);
  return z;
}

void MatMulInto(const NDArray& x, const NDArray& y, NDArray& z, const MatMulAttributes& attributes,
                const NDArray* bias) {
  const Shape shape = ResultShape(x, y, attributes, bias);
  z.CheckAlive("matmul", "Z");
  CheckShape("matmul", "Z", z, shape);
  CheckDType("matmul", "Z", z, DType::kFloat32);
  Dispatch(OpCode::kMatMul, {&x, &y, bias}, {&z}, &attributes);
}

}  // namespace tidepool
