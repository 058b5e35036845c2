#include "tidepool/ndarray/testing/op_case.h"

#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "tidepool/ndarray/testing/case_values.h"
#include "tidepool/ndarray/testing/op_case_groups.h"

namespace tidepool {
namespace {

void RoundToType(OperandValues* operand) {
  VisitDType(operand->dtype, [&](auto t) {
    for (double& value : operand->reals) {
      value = ConvertElement<double>(ConvertElement<decltype(t)>(value));
    }
    for (int64_t& value : operand->ints) {
      value = ConvertElement<int64_t>(ConvertElement<decltype(t)>(value));
    }
  });
}

}  // namespace

void OperandValues::Store(int64_t i, void* out) const {
  VisitDType(dtype, [&](auto t) {
    using T = decltype(t);
    *static_cast<T*>(out) =
        IsFloating(dtype) ? ConvertElement<T>(reals[i]) : ConvertElement<T>(ints[i]);
  });
}

void OperandValues::Append(const void* in) {
  VisitDType(dtype, [&](auto t) {
    using T = decltype(t);
    const T value = *static_cast<const T*>(in);
    if (IsFloating(dtype)) {
      reals.push_back(ConvertElement<double>(value));
    } else {
      ints.push_back(ConvertElement<int64_t>(value));
    }
  });
}

std::string OpCase::ToString() const {
  std::string out = absl::StrCat(Info(op).name, " ", DTypeName(dtype), " (");
  for (const OperandValues& input : inputs) {
    absl::StrAppend(&out, input.present ? input.shape.ToString() : std::string("absent"), " ");
  }
  absl::StrAppend(&out, "->");
  for (const OperandValues& output : outputs) absl::StrAppend(&out, " ", output.shape.ToString());
  return out + ")";
}

OpCase MakeOpCase(OpCode op, DType dtype, std::mt19937_64& random) {
  CaseValues values(random);
  OpCase c{op, dtype, {}, {}, {}, 1};
  for (const auto find : {&FindElementwiseCases, &FindReductionCases, &FindIndexingCases,
                          &FindRandomCases, &FindNnCases, &FindOwnCases}) {
    const CaseMaker make = find(op);
    if (make == nullptr) continue;
    make(values, c);
    for (OperandValues& input : c.inputs) RoundToType(&input);
    for (OperandValues& output : c.outputs) RoundToType(&output);
    return c;
  }
  throw std::logic_error(absl::StrCat("no cases for operator ", Info(op).name));
}

}  // namespace tidepool
