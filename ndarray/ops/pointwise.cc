#include "tidepool/ndarray/ops/pointwise.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

void CheckGradient(OpCode op, const NDArray& x, const NDArray& dz) {
  CheckOperands(op, {&x, &dz});
  if (!Contains(Info(op).types, x.dtype())) {
    ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: ", OperandName(Info(op).inputs, 0),
                                      " is ", DTypeName(x.dtype()), ", expected a float type"));
  }
  CheckShape(Info(op).name, "dZ", dz, x.shape());
  CheckDType(Info(op).name, "dZ", dz, x.dtype());
}

}  // namespace

void CheckNumber(OpCode op, DType dtype) {
  if (dtype != DType::kBool) return;
  ThrowInvalidArgument(
      absl::StrCat("Op [", Info(op).name,
                   "]: operands are bool, expected numbers; Cast them to a number type, or "
                   "use LogicalAnd, LogicalOr, LogicalXor or LogicalNot"));
}

DType TypeForResult(OpCode op, std::initializer_list<const NDArray*> inputs, DType natural,
                    const NDArray& z) {
  if (z.dtype() == natural || (IsFloating(z.dtype()) && IsFloating(natural))) return z.dtype();
  std::string types;
  int index = 0;
  for (const NDArray* input : inputs) {
    absl::StrAppend(&types, OperandName(Info(op).inputs, index++), " is ",
                    DTypeName(input->dtype()), ", ");
  }
  ThrowInvalidArgument(absl::StrCat(
      "Op [", Info(op).name, "]: ", types, "Z is ", DTypeName(z.dtype()), ", expected Z of type ",
      DTypeName(natural), IsFloating(natural) ? " or another float type" : ""));
}

DType RealType(DType dtype) {
  if (IsFloating(dtype)) return dtype;
  return DTypeBytes(dtype) <= 2 ? DType::kFloat32 : DType::kFloat64;
}

DType ProductType(DType dtype) {
  if (IsFloating(dtype)) return dtype;
  return DTypeBytes(dtype) == 8 ? DType::kInt64 : DType::kInt32;
}

NDArray Pointwise(OpCode op, const NDArray& x, DType natural, AttributesRef attributes) {
  CheckOperands(op, {&x});
  NDArray z(x.shape(), natural, ResultPlace(op, {&x}));
  if (x.dtype() == natural) {
    Dispatch(op, {&x}, {&z}, attributes);
  } else {
    const NDArray of_x = CastScratch(x, natural);
    Dispatch(op, {&of_x}, {&z}, attributes);
  }
  return z;
}

NDArray CastScratch(const NDArray& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  NDArray z(x.shape(), dtype, Place::Scratch(x.device()));
  Dispatch(OpCode::kCopy, {&x}, {&z});
  return z;
}

void PointwiseInto(OpCode op, const NDArray& x, DType natural, NDArray& z,
                   AttributesRef attributes) {
  CheckOperands(op, {&x});
  z.CheckAlive(Info(op).name, "Z");
  const DType dtype = TypeForResult(op, {&x}, natural, z);
  CheckShape(Info(op).name, "Z", z, x.shape());
  if (x.dtype() != dtype) return PointwiseInto(op, CastScratch(x, dtype), dtype, z, attributes);
  Dispatch(op, {&x}, {&z}, attributes);
}

NDArray Gradient(OpCode op, const NDArray& x, const NDArray& dz, AttributesRef attributes) {
  CheckGradient(op, x, dz);
  NDArray dx(x.shape(), x.dtype(), ResultPlace(op, {&x, &dz}));
  Dispatch(op, {&x, &dz}, {&dx}, attributes);
  return dx;
}

void GradientInto(OpCode op, const NDArray& x, const NDArray& dz, NDArray& dx,
                  AttributesRef attributes) {
  CheckGradient(op, x, dz);
  dx.CheckAlive(Info(op).name, "dX");
  CheckShape(Info(op).name, "dX", dx, x.shape());
  CheckDType(Info(op).name, "dX", dx, x.dtype());
  Dispatch(op, {&x, &dz}, {&dx}, attributes);
}

}  // namespace tidepool
