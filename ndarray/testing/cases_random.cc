#include "tidepool/ndarray/testing/op_case_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/testing/case_values.h"

namespace tidepool {
namespace {

void RandomFill(CaseValues& m, OpCase& c) {
  RandomAttributes a;
  a.seed = static_cast<uint64_t>(m.Int(0, INT64_MAX - 1));
  a.stream = m.Chance(0.5) ? 0 : static_cast<uint64_t>(m.Int(0, INT64_MAX - 1));
  a.low = m.Real(-3, 3);
  a.high = c.op == OpCode::kRandomUniform ? a.low + m.Real(0, 3) : m.Real(0, 2);
  c.attributes = a;
  c.outputs = {m.Result(DType::kFloat32, m.AnyShape(0, 4))};
}

}  // namespace

CaseMaker FindRandomCases(OpCode op) {
  switch (op) {
    case OpCode::kRandomUniform:
    case OpCode::kRandomNormal:
      return &RandomFill;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
