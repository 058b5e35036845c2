#include "tidepool/ndarray/testing/op_case_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/testing/case_values.h"

namespace tidepool {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void Arithmetic(CaseValues& m, OpCase& c) {
  const bool special = m.Chance(0.3);
  const Shape shape = m.AnyShape(0, 4);
  const Shape x = m.Chance(0.5) ? shape : m.Narrowed(shape);
  const Shape y = m.Chance(0.5) ? shape : m.Narrowed(shape);
  c.inputs = {m.Numbers(c.dtype, x, special), m.Numbers(c.dtype, y, special)};
  if (c.op == OpCode::kDivide) {
    for (int64_t& value : c.inputs[1].ints) value = value == 0 ? -1 : value;  // refused by ops/
  }
  c.outputs = {m.Result(c.dtype, BroadcastShapes("case", x, y))};
}

void Pointwise(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(0, 4);
  const int inputs = c.op == OpCode::kReluGrad ? 2 : 1;
  const bool special = m.Chance(0.3);
  for (int i = 0; i < inputs; ++i) c.inputs.push_back(m.Numbers(c.dtype, shape, special));
  c.outputs = {m.Result(c.dtype, shape)};
  if (c.op == OpCode::kScaleShift) {
    ScaleShiftAttributes a{m.Real(-2, 2), m.Real(-2, 2)};
    if (c.dtype == DType::kInt64) a = {m.Int(-6, 6) * 0.5, m.Int(-6, 6) * 0.5};
    c.attributes = a;
  }
}

void CopyOrFill(CaseValues& m, OpCase& c) {
  const Shape shape = m.AnyShape(0, 4);
  if (c.op == OpCode::kFill) {
    static constexpr double kValues[] = {0, -0.0, 1, -3.5, 1e30, 1e-40, kNaN, -kInfinity};
    c.attributes = FillAttributes{kValues[m.Int(0, std::size(kValues) - 1)]};
    c.outputs = {m.Result(c.dtype, shape)};
    return;
  }
  c.inputs = {m.Numbers(c.dtype, shape, m.Chance(0.5))};
  for (double& value : c.inputs[0].reals) value *= m.Chance(0.1) ? 1e20f : 100.0f;
  c.outputs = {m.Result(m.Chance(0.5) ? c.dtype : static_cast<DType>(m.Int(0, kDTypes - 1)), shape)};
}

}  // namespace

CaseMaker FindElementwiseCases(OpCode op) {
  switch (op) {
    case OpCode::kFill:
    case OpCode::kCopy:
      return &CopyOrFill;
    case OpCode::kAdd:
    case OpCode::kSubtract:
    case OpCode::kMultiply:
    case OpCode::kDivide:
      return &Arithmetic;
    case OpCode::kScaleShift:
    case OpCode::kRelu:
    case OpCode::kReluGrad:
      return &Pointwise;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
