// Operators of an array and a number (elementwise.h, comparison.h).
//
// What is linear in the array is one pass of scale_shift, where the kernel's doubles are exact. Everything else
// meets the number as an array of rank 0.
#include <cmath>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/pointwise.h"
#include "tidepool/ndarray/ops/scalar_operand.h"

namespace tidepool {
namespace {

// The number as an operand beside `like`.
NDArray Operand(const Scalar& value, const NDArray& like) {
  return ScalarOperand(value, like.dtype(), like);
}

// The same where the type must hold it.
NDArray HeldOperand(OpCode op, const char* operand, const Scalar& value, const NDArray& like) {
  CheckFits(Info(op).name, operand, value, like.dtype());
  return Operand(value, like);
}

// What scale_shift is told for `value`: as an element of the type of a float array, else itself.
double NumberFor(const NDArray& x, const Scalar& value) {
  if (!IsFloating(x.dtype())) return value.To<double>();
  return VisitDType(x.dtype(),
                    [&](auto t) { return ConvertElement<double>(value.To<decltype(t)>()); });
}

void Check(OpCode op, const NDArray& x) {
  CheckOperands(op, {&x});
  CheckNumber(op, x.dtype());
}

// Whether the number, and what it is negated, is exact as a double, and an i64 where it is a whole one that an i64 holds.
bool IsLinear(const NDArray& x, const Scalar& value) {
  if (IsFloating(x.dtype())) return true;
  const auto number = value.To<double>();
  if (value.is_real())
    return number != -0x1p63;  // NaN and what no i64 holds are computed with in double
  return value.FitsDouble() && number > -0x1p63 && number < 0x1p63;
}

// Added to a product it leaves all products as they are, -0 too.
double NoShift(const NDArray& x) { return IsFloating(x.dtype()) ? -0.0 : 0; }

// Whether dividing by `value` is multiplying by a number that the type holds as exactly, to the bit: by a power
// of two that is neither tiny nor huge.
bool HasExactReciprocal(DType dtype, double value) {
  int exponent;
  if (std::abs(std::frexp(value, &exponent)) != 0.5) return false;  // NaN, 0 and infinities as well
  return std::abs(exponent) < (dtype == DType::kFloat64 ? 1000 : 120);
}

}  // namespace

NDArray Add(const NDArray& x, const Scalar& y) {
  Check(OpCode::kAdd, x);
  return IsLinear(x, y) ? ScaleShift(x, 1, NumberFor(x, y)) : Add(x, Operand(y, x));
}

NDArray Subtract(const NDArray& x, const Scalar& y) {
  Check(OpCode::kSubtract, x);
  return IsLinear(x, y) ? ScaleShift(x, 1, -NumberFor(x, y)) : Subtract(x, Operand(y, x));
}

NDArray Subtract(const Scalar& x, const NDArray& y) {
  Check(OpCode::kSubtract, y);
  return IsLinear(y, x) ? ScaleShift(y, -1, NumberFor(y, x)) : Subtract(Operand(x, y), y);
}

NDArray Multiply(const NDArray& x, const Scalar& y) {
  Check(OpCode::kMultiply, x);
  return IsLinear(x, y) ? ScaleShift(x, NumberFor(x, y), NoShift(x)) : Multiply(x, Operand(y, x));
}

NDArray Divide(const NDArray& x, const Scalar& y) {
  Check(OpCode::kDivide, x);
  if (IsFloating(x.dtype())) {
    const double divisor = NumberFor(x, y);
    if (HasExactReciprocal(x.dtype(), divisor)) return ScaleShift(x, 1 / divisor, NoShift(x));
  }
  return Divide(x, HeldOperand(OpCode::kDivide, "Y", y, x));
}

NDArray Divide(const Scalar& x, const NDArray& y) {
  Check(OpCode::kDivide, y);
  return Divide(HeldOperand(OpCode::kDivide, "X", x, y), y);
}

void AddInto(const NDArray& x, const Scalar& y, NDArray& z) {
  Check(OpCode::kAdd, x);
  IsLinear(x, y) ? ScaleShiftInto(x, 1, NumberFor(x, y), z) : AddInto(x, Operand(y, x), z);
}

void SubtractInto(const NDArray& x, const Scalar& y, NDArray& z) {
  Check(OpCode::kSubtract, x);
  IsLinear(x, y) ? ScaleShiftInto(x, 1, -NumberFor(x, y), z) : SubtractInto(x, Operand(y, x), z);
}

void MultiplyInto(const NDArray& x, const Scalar& y, NDArray& z) {
  Check(OpCode::kMultiply, x);
  IsLinear(x, y) ? ScaleShiftInto(x, NumberFor(x, y), NoShift(x), z)
                 : MultiplyInto(x, Operand(y, x), z);
}

void DivideInto(const NDArray& x, const Scalar& y, NDArray& z) {
  Check(OpCode::kDivide, x);
  if (IsFloating(x.dtype())) {
    const double divisor = NumberFor(x, y);
    if (HasExactReciprocal(x.dtype(), divisor))
      return ScaleShiftInto(x, 1 / divisor, NoShift(x), z);
  }
  DivideInto(x, HeldOperand(OpCode::kDivide, "Y", y, x), z);
}

#define TIDEPOOL_WITH_SCALAR(Name)                           \
  NDArray Name(const NDArray& x, const Scalar& y) {          \
    Check(OpCode::k##Name, x);                               \
    return Name(x, HeldOperand(OpCode::k##Name, "Y", y, x)); \
  }
#define TIDEPOOL_WITH_SCALAR_FIRST(Name)                     \
  NDArray Name(const Scalar& x, const NDArray& y) {          \
    Check(OpCode::k##Name, y);                               \
    return Name(HeldOperand(OpCode::k##Name, "X", x, y), y); \
  }
TIDEPOOL_WITH_SCALAR(Maximum)
TIDEPOOL_WITH_SCALAR(Minimum)
TIDEPOOL_WITH_SCALAR(Power)
TIDEPOOL_WITH_SCALAR(Remainder)
TIDEPOOL_WITH_SCALAR(FMod)
TIDEPOOL_WITH_SCALAR(FloorDivide)
TIDEPOOL_WITH_SCALAR_FIRST(Power)
TIDEPOOL_WITH_SCALAR_FIRST(Remainder)
TIDEPOOL_WITH_SCALAR_FIRST(FMod)
TIDEPOOL_WITH_SCALAR_FIRST(FloorDivide)
#undef TIDEPOOL_WITH_SCALAR
#undef TIDEPOOL_WITH_SCALAR_FIRST

// ---- comparisons ----------------------------------------------------------------------------------

namespace {

// Where a number lies among the elements of an integer or bool type, when these are compared with it.
struct Bound {
  enum class Lies : uint8_t {
    kBelowAll,
    kAt,
    kAboveAll,
    kNowhere
  };  // kNowhere: equal to none, NaN less than none
  Lies lies;
  Scalar element = 0;  // of kAt: to be compared with in its place
};

// Of a number with a fraction the element next to it on the side that gives the same answers.
Bound BoundOf(OpCode op, DType dtype, const Scalar& value) {
  using Lies = Bound::Lies;
  Scalar whole = value;
  if (value.is_real()) {
    double real = value.To<double>();
    if (std::isnan(real)) return {Lies::kNowhere};
    if (op == OpCode::kEqual || op == OpCode::kNotEqual) {
      if (real != std::trunc(real)) return {Lies::kNowhere};
    } else {
      real =
          op == OpCode::kLess || op == OpCode::kGreaterEqual ? std::ceil(real) : std::floor(real);
    }
    if (real < -0x1p63) return {Lies::kBelowAll};
    if (real >= 0x1p64) return {Lies::kAboveAll};
    whole =
        real < 0x1p63 ? Scalar(static_cast<int64_t>(real)) : Scalar(static_cast<uint64_t>(real));
  }
  if (whole.FitsIn(dtype)) return {Lies::kAt, whole};
  return {whole.To<double>() < 0 ? Lies::kBelowAll : Lies::kAboveAll};
}

// What each element of such a type answers.
bool Answer(OpCode op, Bound::Lies lies) {
  if (op == OpCode::kNotEqual) return true;
  if (op == OpCode::kEqual || lies == Bound::Lies::kNowhere) return false;
  const bool is_less = op == OpCode::kLess || op == OpCode::kLessEqual;
  return is_less == (lies == Bound::Lies::kAboveAll);
}

using Comparison = NDArray (*)(const NDArray& x, const NDArray& y);

NDArray CompareWith(OpCode op, Comparison compare, const NDArray& x, const Scalar& y) {
  CheckOperands(op, {&x});
  if (IsFloating(x.dtype())) return compare(x, Operand(y, x));
  const Bound bound = BoundOf(op, x.dtype(), y);
  if (bound.lies == Bound::Lies::kAt) return compare(x, Operand(bound.element, x));
  NDArray z(x.shape(), DType::kBool, ResultPlace(op, {&x}));
  FillInto(Answer(op, bound.lies), z);
  return z;
}

}  // namespace

#define TIDEPOOL_COMPARE(Name)                        \
  NDArray Name(const NDArray& x, const Scalar& y) {   \
    return CompareWith(OpCode::k##Name, &Name, x, y); \
  }
TIDEPOOL_COMPARE(Equal)
TIDEPOOL_COMPARE(NotEqual)
TIDEPOOL_COMPARE(Less)
TIDEPOOL_COMPARE(LessEqual)
TIDEPOOL_COMPARE(Greater)
TIDEPOOL_COMPARE(GreaterEqual)
#undef TIDEPOOL_COMPARE

NDArray Where(const NDArray& condition, const NDArray& x, const Scalar& y) {
  CheckOperands(OpCode::kWhere, {&condition, &x});
  return Where(condition, x, HeldOperand(OpCode::kWhere, "Y", y, x));
}

NDArray Where(const NDArray& condition, const Scalar& x, const NDArray& y) {
  CheckOperands(OpCode::kWhere, {&condition, &y});
  return Where(condition, HeldOperand(OpCode::kWhere, "X", x, y), y);
}

NDArray Where(const NDArray& condition, const Scalar& x, const Scalar& y, DType dtype) {
  CheckOperands(OpCode::kWhere, {&condition});
  CheckFits("where", "X", x, dtype);
  CheckFits("where", "Y", y, dtype);
  return Where(condition, ScalarOperand(x, dtype, condition), ScalarOperand(y, dtype, condition));
}

}  // namespace tidepool
