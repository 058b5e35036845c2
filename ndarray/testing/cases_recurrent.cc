// The elementwise part of LSTM and GRU cells.
#include <cmath>

#include "tidepool/ndarray/testing/case_values.h"
#include "tidepool/ndarray/testing/op_case_groups.h"

namespace tidepool {
namespace {

// One infinity or NaN now and then: gates are defined for them.
OperandValues Gates(CaseValues& m, DType dtype, const Shape& shape) {
  OperandValues gates = m.Floats(shape, false, dtype);
  const double range = m.Chance(0.2) ? 40 : 3;
  for (double& value : gates.reals) value *= range;
  if (m.Chance(0.15) && !gates.reals.empty()) {
    constexpr double kSpecial[] = {NAN, INFINITY, -INFINITY};
    gates.reals[m.Int(0, shape.NumElements() - 1)] = kSpecial[m.Int(0, 2)];
  }
  return gates;
}

void Cells(CaseValues& m, OpCase& c) {
  const int64_t batch = m.Size(33), hidden = m.Size(65);
  const Shape state{batch, hidden}, four{batch, 4 * hidden}, three{batch, 3 * hidden};
  auto floats = [&](const Shape& shape) { return m.Floats(shape, false, c.dtype); };
  auto result = [&](const Shape& shape) { return m.Result(c.dtype, shape); };
  c.inner = 2;
  switch (c.op) {
    case OpCode::kLstmCell:
      c.inputs = {Gates(m, c.dtype, four), floats(state)};
      c.outputs = {result(state), result(state), result(four)};
      return;
    case OpCode::kLstmCellGrad:
      c.inputs = {floats(four), floats(state), floats(state), floats(state), floats(state)};
      c.inputs[4].present = m.Chance(0.6);
      c.outputs = {result(four), result(state)};
      return;
    case OpCode::kGruCell:
      c.inputs = {Gates(m, c.dtype, three), floats(three), floats(state)};
      c.outputs = {result(state), result(three)};
      return;
    default:
      c.inputs = {floats(three), floats(three), floats(state), floats(state)};
      c.outputs = {result(three), result(three), result(state)};
  }
}

}  // namespace

CaseMaker FindRecurrentCases(OpCode op) {
  switch (op) {
    case OpCode::kLstmCell:
    case OpCode::kLstmCellGrad:
    case OpCode::kGruCell:
    case OpCode::kGruCellGrad:
      return &Cells;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
