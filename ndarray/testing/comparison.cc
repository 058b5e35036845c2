#include "tidepool/ndarray/testing/comparison.h"

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/ndarray/testing/own_operator.h"

namespace tidepool {
namespace {

bool Equal(double actual, double expected, Tolerance tolerance, double inner) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) == std::isnan(actual);
  if (tolerance.comparison == Comparison::kBits) {
    return std::bit_cast<uint64_t>(actual) == std::bit_cast<uint64_t>(expected);
  }
  if (actual == expected) return true;
  if (tolerance.comparison == Comparison::kValue || std::isinf(actual) || std::isinf(expected)) {
    return false;
  }
  return std::abs(actual - expected) <=
         tolerance.relative * std::abs(expected) + tolerance.absolute * inner;
}

struct Tolerances {
  Tolerance of[kOpCodes] = {};
  bool known[kOpCodes] = {};

  constexpr void Set(OpCode op, Tolerance tolerance) {
    of[static_cast<int>(op)] = tolerance;
    known[static_cast<int>(op)] = true;
  }
  constexpr bool complete() const {
    for (const bool one : known) {
      if (!one) return false;
    }
    return true;
  }
};

constexpr Tolerances MakeTolerances() {
  Tolerances all;
#define TIDEPOOL_OPERATOR(Name, ...) all.Set(OpCode::k##Name, {Comparison::kBits, 0, 0});
#include "tidepool/ndarray/kernel/operators/bits.inc"
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
#include "tidepool/ndarray/kernel/operators/logic.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, ...) all.Set(OpCode::k##Name, {Comparison::kClose, 5e-7, 1e-44});
#include "tidepool/ndarray/kernel/operators/function_gradients.inc"
#include "tidepool/ndarray/kernel/operators/functions.inc"
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_TOLERANCE(Name, comparison, relative, absolute) \
  all.Set(OpCode::k##Name, {Comparison::comparison, relative, absolute});
#include "tidepool/ndarray/testing/tolerances.inc"
#undef TIDEPOOL_TOLERANCE
  return all;
}

constexpr Tolerances kTolerances = MakeTolerances();
static_assert(kTolerances.complete(), "an operator has no line in tolerances.inc");

}  // namespace

Tolerance InPrecisionOf(DType dtype, Tolerance tolerance) {
  const double steps = dtype == DType::kFloat64    ? 0x1p-29
                       : dtype == DType::kFloat16  ? 0x1p13
                       : dtype == DType::kBFloat16 ? 0x1p16
                                                   : 1;
  tolerance.relative *= steps;
  tolerance.absolute *= steps;
  return tolerance;
}

Tolerance ToleranceOf(OpCode op, DType dtype) {
  return InPrecisionOf(dtype, static_cast<int>(op) < kOpCodes ? kTolerances.of[static_cast<int>(op)]
                                                              : ToleranceOfOwn(op));
}

std::string Difference(const OperandValues& actual, const OperandValues& expected,
                       Tolerance tolerance, double inner) {
  if (!(actual.shape == expected.shape) || actual.dtype != expected.dtype) {
    return absl::StrCat("shape ", actual.shape.ToString(), " ", DTypeName(actual.dtype),
                        ", expected ", expected.shape.ToString(), " ", DTypeName(expected.dtype));
  }
  const int64_t count = expected.shape.NumElements();
  int64_t different = 0;
  std::string first;
  for (int64_t i = 0; i < count; ++i) {
    if (!IsFloating(expected.dtype)) {
      if (actual.ints[i] == expected.ints[i]) continue;
      if (different++ == 0) {
        first =
            absl::StrCat("element ", i, " is ", actual.ints[i], ", expected ", expected.ints[i]);
      }
    } else {
      if (Equal(actual.reals[i], expected.reals[i], tolerance, inner)) continue;
      if (different++ == 0) {
        first = absl::StrFormat("element %d is %.17g, expected %.17g", i, actual.reals[i],
                                expected.reals[i]);
      }
    }
  }
  return different == 0 ? "" : absl::StrCat(first, "; ", different, " of ", count, " differ");
}

}  // namespace tidepool
