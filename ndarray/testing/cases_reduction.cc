#include "tidepool/ndarray/testing/op_case_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/testing/case_values.h"

namespace tidepool {
namespace {

void Reduction(CaseValues& m, OpCase& c) {
  const int64_t rows = m.Size(128);
  const int64_t count = m.Chance(0.03) ? m.Int(5000, 20000) : m.NonZero(257);
  c.inner = static_cast<double>(count);
  if (c.op == OpCode::kArgMax) {
    c.inputs = {m.Numbers(c.dtype, {rows, count}, m.Chance(0.4))};
    if (m.Chance(0.5)) m.MakeTies(&c.inputs[0]);
    c.outputs = {m.Result(DType::kInt64, {rows})};
    return;
  }
  const SumAttributes a{m.Chance(0.5)};
  c.attributes = a;
  c.inputs = {
      m.Numbers(c.dtype, a.first_axis ? Shape{count, rows} : Shape{rows, count}, m.Chance(0.2))};
  c.outputs = {m.Result(c.dtype, {rows})};
}

}  // namespace

CaseMaker FindReductionCases(OpCode op) {
  switch (op) {
    case OpCode::kSum:
    case OpCode::kArgMax:
      return &Reduction;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
