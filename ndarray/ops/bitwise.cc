#include "tidepool/ndarray/ops/bitwise.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/pointwise.h"
#include "tidepool/ndarray/ops/scalar_operand.h"

namespace tidepool {
namespace {

void CheckBits(const char* op, const char* operand, const NDArray& x) {
  if (!IsFloating(x.dtype())) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " is ", DTypeName(x.dtype()),
                                    ", expected an integer type or bool"));
}

// Whether both are bool.
bool AreTruths(OpCode op, const NDArray& x, const NDArray& y) {
  CheckOperands(op, {&x, &y});
  CheckBits(Info(op).name, "X", x);
  CheckBits(Info(op).name, "Y", y);
  if (IsFloating(PromoteTypes(x.dtype(), y.dtype()))) {
    ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: X is ", DTypeName(x.dtype()),
                                      ", Y is ", DTypeName(y.dtype()),
                                      ", expected types that an integer type holds; Cast one"));
  }
  return x.dtype() == DType::kBool && y.dtype() == DType::kBool;
}

NDArray OperandOf(OpCode op, const NDArray& x, const Scalar& y) {
  CheckOperands(op, {&x});
  CheckBits(Info(op).name, "X", x);
  CheckFits(Info(op).name, "Y", y, x.dtype());
  return ScalarOperand(y, x.dtype(), x);
}

}  // namespace

#define TIDEPOOL_BITWISE(Name)                                                        \
  NDArray Bitwise##Name(const NDArray& x, const NDArray& y) {                         \
    if (AreTruths(OpCode::kBitwise##Name, x, y)) return Logical##Name(x, y);          \
    return Binary(OpCode::kBitwise##Name, x, y);                                      \
  }                                                                                   \
  void Bitwise##Name##Into(const NDArray& x, const NDArray& y, NDArray& z) {          \
    if (AreTruths(OpCode::kBitwise##Name, x, y)) return Logical##Name##Into(x, y, z); \
    BinaryInto(OpCode::kBitwise##Name, x, y, z);                                      \
  }                                                                                   \
  NDArray Bitwise##Name(const NDArray& x, const Scalar& y) {                          \
    return Bitwise##Name(x, OperandOf(OpCode::kBitwise##Name, x, y));                 \
  }
TIDEPOOL_BITWISE(And)
TIDEPOOL_BITWISE(Or)
TIDEPOOL_BITWISE(Xor)
#undef TIDEPOOL_BITWISE

#define TIDEPOOL_OF_INTEGERS(Name)                                  \
  NDArray Name(const NDArray& x, const NDArray& y) {                \
    AreTruths(OpCode::k##Name, x, y);                               \
    return Binary(OpCode::k##Name, x, y);                           \
  }                                                                 \
  void Name##Into(const NDArray& x, const NDArray& y, NDArray& z) { \
    AreTruths(OpCode::k##Name, x, y);                               \
    BinaryInto(OpCode::k##Name, x, y, z);                           \
  }                                                                 \
  NDArray Name(const NDArray& x, const Scalar& y) {                 \
    return Name(x, OperandOf(OpCode::k##Name, x, y));               \
  }
TIDEPOOL_OF_INTEGERS(ShiftLeft)
TIDEPOOL_OF_INTEGERS(ShiftRight)
TIDEPOOL_OF_INTEGERS(Gcd)
TIDEPOOL_OF_INTEGERS(Lcm)
#undef TIDEPOOL_OF_INTEGERS

// -1 - x has the bits of x turned round.
NDArray BitwiseNot(const NDArray& x) {
  x.CheckAlive("bitwise_not", "X");
  CheckBits("bitwise_not", "X", x);
  return x.dtype() == DType::kBool ? LogicalNot(x) : ScaleShift(x, -1, -1);
}

void BitwiseNotInto(const NDArray& x, NDArray& z) {
  x.CheckAlive("bitwise_not", "X");
  CheckBits("bitwise_not", "X", x);
  x.dtype() == DType::kBool ? LogicalNotInto(x, z) : ScaleShiftInto(x, -1, -1, z);
}

}  // namespace tidepool
