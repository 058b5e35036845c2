#include "tidepool/ndarray/testing/op_case_groups.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/testing/case_values.h"

namespace tidepool {
namespace {

bool IsExact(OpCode op) {
  switch (op) {
    case OpCode::kMean:
    case OpCode::kVariance:
    case OpCode::kNorm1:
    case OpCode::kNorm2:
    case OpCode::kNormInf:
    case OpCode::kLogSumExp:
      return false;
    default:
      return true;
  }
}

DType ResultType(OpCode op, DType x) {
  if (op == OpCode::kAny || op == OpCode::kAll) return DType::kBool;
  if (op == OpCode::kArgMax || op == OpCode::kArgMin) return DType::kInt64;
  if (IsFloating(x) || op == OpCode::kMax || op == OpCode::kMin) return x;
  return IsExact(op) ? TotalType(x) : DType::kFloat64;
}

// A rank with one or two long axes now and then: more than a block, a slab, a task.
Shape InputShape(CaseValues& m, int least_rank) {
  if (!m.Chance(0.04)) return m.AnyShape(least_rank, m.Chance(0.1) ? kMaxRank : 4);
  switch (m.Int(0, 3)) {
    case 0:
      return {m.Int(4000, 20000), m.Int(1, 5)};
    case 1:
      return {m.Int(1, 3), m.Int(1000, 9000), m.Int(1, 3)};
    case 2:
      return {m.Int(1, 40), m.Int(300, 1500)};
    default:
      return {m.Int(1, 5), m.Int(20, 5000)};
  }
}

void Reduction(CaseValues& m, OpCase& c) {
  const bool arg = c.op == OpCode::kArgMax || c.op == OpCode::kArgMin;
  const Shape drawn = InputShape(m, arg ? 1 : 0);
  const int rank = drawn.rank();
  ReduceAttributes a;
  a.axes = arg ? 1u << m.Int(0, rank - 1) : static_cast<uint32_t>(m.Int(0, (1 << rank) - 1));
  if (c.op == OpCode::kVariance) a.ddof = m.Int(0, 2);
  int64_t dims[kMaxRank], kept[kMaxRank];
  int kept_rank = 0;
  for (int i = 0; i < rank; ++i) {
    dims[i] = IsReduced(a, i) ? std::max<int64_t>(1, drawn[i]) : drawn[i];
    if (!IsReduced(a, i)) kept[kept_rank++] = dims[i];
    if (IsReduced(a, i)) c.inner *= static_cast<double>(dims[i]);
  }
  // Integers are about 1000, not about 1.
  if (!IsExact(c.op) && !IsFloating(c.dtype)) c.inner *= c.op == OpCode::kVariance ? 1e6 : 1e3;
  c.attributes = a;
  const Shape shape(absl::Span<const int64_t>(dims, rank));
  const bool special = m.Chance(0.3) && (IsFloating(c.dtype) || IsExact(c.op));
  c.inputs = {m.Numbers(c.dtype, shape, special)};
  if (!IsExact(c.op) && IsUnsigned(c.dtype)) {  // negative ones would wrap to the type's largest
    for (int64_t& value : c.inputs[0].ints) value = std::abs(value);
  }
  if (m.Chance(0.4)) m.MakeTies(&c.inputs[0]);
  // One element that decides, or none.
  if ((c.op == OpCode::kAny || c.op == OpCode::kAll) && shape.NumElements() > 0) {
    const int64_t most = c.op == OpCode::kAny ? 0 : 1;
    std::fill(c.inputs[0].reals.begin(), c.inputs[0].reals.end(), most);
    std::fill(c.inputs[0].ints.begin(), c.inputs[0].ints.end(), most);
    if (m.Chance(0.7)) {
      const size_t at = static_cast<size_t>(m.Int(0, shape.NumElements() - 1));
      const int64_t other = IsFloating(c.dtype) && m.Chance(0.3) ? INT64_MAX : 1 - most;
      if (IsFloating(c.dtype)) {
        c.inputs[0].reals[at] = other > 1 ? std::numeric_limits<double>::quiet_NaN() : other;
      } else {
        c.inputs[0].ints[at] = other;
      }
    }
  }
  // Products that neither vanish nor explode.
  if (c.op == OpCode::kProd) {
    for (double& value : c.inputs[0].reals) {
      if (std::isfinite(value) && std::abs(value) > 0.01) value = value > 0 ? 1 + value / 64 : -1;
    }
    for (int64_t& value : c.inputs[0].ints) value = value == 0 ? 3 : value;
  }
  c.outputs = {
      m.Result(ResultType(c.op, c.dtype), Shape(absl::Span<const int64_t>(kept, kept_rank)))};
}

}  // namespace

CaseMaker FindReductionCases(OpCode op) {
  switch (op) {
    case OpCode::kSum:
    case OpCode::kProd:
    case OpCode::kMean:
    case OpCode::kVariance:
    case OpCode::kNorm1:
    case OpCode::kNorm2:
    case OpCode::kNormInf:
    case OpCode::kLogSumExp:
    case OpCode::kMax:
    case OpCode::kMin:
    case OpCode::kAny:
    case OpCode::kAll:
    case OpCode::kArgMax:
    case OpCode::kArgMin:
      return &Reduction;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
