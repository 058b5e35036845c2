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

}  // namespace

Tolerance ToleranceOf(OpCode op, DType dtype) {
  constexpr Tolerance kTolerances[] = {
#define TIDEPOOL_OPERATOR(code, name, inputs, outputs, attributes, flags, types, comparison, \
                          relative, absolute)                                              \
  {Comparison::comparison, relative, absolute},
#include "tidepool/ndarray/kernel/operator_list.inc"
#undef TIDEPOOL_OPERATOR
  };
  Tolerance tolerance = static_cast<int>(op) < kOpCodes ? kTolerances[static_cast<int>(op)]
                                                        : ToleranceOfOwn(op);
  const double steps = dtype == DType::kFloat64    ? 0x1p-29
                       : dtype == DType::kFloat16  ? 0x1p13
                       : dtype == DType::kBFloat16 ? 0x1p16
                                                   : 1;
  tolerance.relative *= steps;
  tolerance.absolute *= steps;
  return tolerance;
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
        first = absl::StrCat("element ", i, " is ", actual.ints[i], ", expected ", expected.ints[i]);
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
