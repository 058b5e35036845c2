#include "tidepool/ndarray/testing/comparison.h"

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tidepool {
namespace {

bool Equal(float actual, float expected, Tolerance tolerance, double inner) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) == std::isnan(actual);
  if (tolerance.comparison == Comparison::kBits) {
    return std::bit_cast<uint32_t>(actual) == std::bit_cast<uint32_t>(expected);
  }
  if (actual == expected) return true;
  if (tolerance.comparison == Comparison::kValue || std::isinf(actual) || std::isinf(expected)) {
    return false;
  }
  const double difference = std::abs(static_cast<double>(actual) - expected);
  return difference <=
         tolerance.relative * std::abs(static_cast<double>(expected)) + tolerance.absolute * inner;
}

}  // namespace

Tolerance ToleranceOf(OpCode op) {
  switch (op) {
#define TIDEPOOL_TOLERANCE(code, comparison, relative, absolute) \
  case OpCode::k##code:                                          \
    return {Comparison::comparison, relative, absolute};
#include "tidepool/ndarray/kernel/tolerances.inc"
#undef TIDEPOOL_TOLERANCE
  }
  return {};
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
    if (expected.dtype == DType::kInt64) {
      if (actual.i64[i] == expected.i64[i]) continue;
      if (different++ == 0) {
        first = absl::StrCat("element ", i, " is ", actual.i64[i], ", expected ", expected.i64[i]);
      }
    } else {
      if (Equal(actual.f32[i], expected.f32[i], tolerance, inner)) continue;
      if (different++ == 0) {
        first =
            absl::StrFormat("element %d is %.9g, expected %.9g", i, actual.f32[i], expected.f32[i]);
      }
    }
  }
  return different == 0 ? "" : absl::StrCat(first, "; ", different, " of ", count, " differ");
}

}  // namespace tidepool
