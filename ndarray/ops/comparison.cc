#include "tidepool/ndarray/ops/comparison.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/pointwise.h"
#include "tidepool/ndarray/ops/scalar_operand.h"

namespace tidepool {
namespace {

constexpr DType kBool = DType::kBool;

NDArray Compare(OpCode op, const NDArray& x, const NDArray& y) {
  CheckOperands(op, {&x, &y});
  const Shape shape = BroadcastShapes(Info(op).name, x.shape(), y.shape());
  if (x.dtype() != y.dtype()) {
    const DType dtype = PromoteTypes(x.dtype(), y.dtype());
    const NDArray of_x = CastScratch(x, dtype), of_y = CastScratch(y, dtype);
    NDArray z(shape, kBool, ResultPlace(op, {&x, &y}));
    Dispatch(op, {&of_x, &of_y}, {&z});
    return z;
  }
  NDArray z(shape, kBool, ResultPlace(op, {&x, &y}));
  Dispatch(op, {&x, &y}, {&z});
  return z;
}

void CompareInto(OpCode op, const NDArray& x, const NDArray& y, NDArray& z) {
  CheckOperands(op, {&x, &y});
  z.CheckAlive(Info(op).name, "Z");
  CheckDType(Info(op).name, "Z", z, kBool);
  CheckShape(Info(op).name, "Z", z, BroadcastShapes(Info(op).name, x.shape(), y.shape()));
  if (x.dtype() != y.dtype()) {
    const DType dtype = PromoteTypes(x.dtype(), y.dtype());
    return CompareInto(op, CastScratch(x, dtype), CastScratch(y, dtype), z);
  }
  Dispatch(op, {&x, &y}, {&z});
}

void CheckBool(OpCode op, const char* operand, const NDArray& x) {
  if (x.dtype() == kBool) return;
  ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: ", operand, " is ",
                                    DTypeName(x.dtype()),
                                    ", expected bool; compare it with something, or Cast it"));
}

NDArray Logical(OpCode op, const NDArray& x, const NDArray& y) {
  CheckOperands(op, {&x, &y});
  CheckBool(op, "X", x);
  CheckBool(op, "Y", y);
  return Compare(op, x, y);
}

void LogicalInto(OpCode op, const NDArray& x, const NDArray& y, NDArray& z) {
  CheckOperands(op, {&x, &y});
  CheckBool(op, "X", x);
  CheckBool(op, "Y", y);
  CompareInto(op, x, y, z);
}

// Integers have no NaN and no infinity; below 0 their sign is set.
void ClassifyIntegers(OpCode op, const NDArray& x, NDArray& z) {
  if (op == OpCode::kSignBit && x.dtype() != kBool)
    return LessInto(x, ScalarOperand(int64_t{0}, x.dtype(), x), z);
  FillInto(op == OpCode::kIsFinite, z);
}

NDArray Classify(OpCode op, const NDArray& x) {
  CheckOperands(op, {&x});
  NDArray z(x.shape(), kBool, ResultPlace(op, {&x}));
  if (!IsFloating(x.dtype())) return ClassifyIntegers(op, x, z), z;
  Dispatch(op, {&x}, {&z});
  return z;
}

void ClassifyInto(OpCode op, const NDArray& x, NDArray& z) {
  CheckOperands(op, {&x});
  z.CheckAlive(Info(op).name, "Z");
  CheckDType(Info(op).name, "Z", z, kBool);
  CheckShape(Info(op).name, "Z", z, x.shape());
  if (!IsFloating(x.dtype())) return ClassifyIntegers(op, x, z);
  Dispatch(op, {&x}, {&z});
}

Shape CheckWhere(const NDArray& condition, const NDArray& x, const NDArray& y) {
  CheckOperands(OpCode::kWhere, {&condition, &x, &y});
  CheckBool(OpCode::kWhere, "condition", condition);
  const Shape values = BroadcastShapes("where", x.shape(), y.shape());
  const Shape& c = condition.shape();
  for (int i = 1; i <= c.rank() && i <= values.rank(); ++i) {
    const int64_t size = c[c.rank() - i], other = values[values.rank() - i];
    if (size == other || size == 1 || other == 1) continue;
    ThrowInvalidArgument(absl::StrCat("Op [where]: condition has shape ", c.ToString(),
                                      ", X and Y together ", values.ToString(), "; sizes ", size,
                                      " and ", other, " do not broadcast"));
  }
  return BroadcastShapes("where", c, values);
}

}  // namespace

#define TIDEPOOL_BINARY(Name, Function)                                                        \
  NDArray Name(const NDArray& x, const NDArray& y) { return Function(OpCode::k##Name, x, y); } \
  void Name##Into(const NDArray& x, const NDArray& y, NDArray& z) {                            \
    Function##Into(OpCode::k##Name, x, y, z);                                                  \
  }
#define TIDEPOOL_OPERATOR(Name, ...) TIDEPOOL_BINARY(Name, Compare)
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, ...) TIDEPOOL_BINARY(Name, Logical)
#include "tidepool/ndarray/kernel/operators/logic.inc"
#undef TIDEPOOL_OPERATOR
#undef TIDEPOOL_BINARY

NDArray LogicalNot(const NDArray& x) {
  CheckOperands(OpCode::kLogicalNot, {&x});
  CheckBool(OpCode::kLogicalNot, "X", x);
  return Pointwise(OpCode::kLogicalNot, x, kBool);
}

void LogicalNotInto(const NDArray& x, NDArray& z) {
  CheckOperands(OpCode::kLogicalNot, {&x});
  CheckBool(OpCode::kLogicalNot, "X", x);
  PointwiseInto(OpCode::kLogicalNot, x, kBool, z);
}

#define TIDEPOOL_OPERATOR(Name, ...)                                      \
  NDArray Name(const NDArray& x) { return Classify(OpCode::k##Name, x); } \
  void Name##Into(const NDArray& x, NDArray& z) { ClassifyInto(OpCode::k##Name, x, z); }
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
#undef TIDEPOOL_OPERATOR

NDArray Where(const NDArray& condition, const NDArray& x, const NDArray& y) {
  const Shape shape = CheckWhere(condition, x, y);
  const DType dtype = PromoteTypes(x.dtype(), y.dtype());
  // What is chosen decides where the result goes, not by what it is chosen.
  NDArray z(shape, dtype, ResultPlace(OpCode::kWhere, {&x, &y, &condition}));
  const NDArray of_x = CastScratch(x, dtype), of_y = CastScratch(y, dtype);
  Dispatch(OpCode::kWhere, {&condition, &of_x, &of_y}, {&z});
  return z;
}

void WhereInto(const NDArray& condition, const NDArray& x, const NDArray& y, NDArray& z) {
  const Shape shape = CheckWhere(condition, x, y);
  z.CheckAlive("where", "Z");
  const DType natural = PromoteTypes(x.dtype(), y.dtype());
  const DType dtype = TypeForResult(OpCode::kWhere, {&condition, &x, &y}, natural, z);
  CheckShape("where", "Z", z, shape);
  if (x.dtype() != dtype || y.dtype() != dtype) {
    return WhereInto(condition, CastScratch(x, dtype), CastScratch(y, dtype), z);
  }
  Dispatch(OpCode::kWhere, {&condition, &x, &y}, {&z});
}

}  // namespace tidepool
