#include "tidepool/ndarray/testing/op_case_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/testing/case_values.h"

namespace tidepool {
namespace {

uint64_t Seed(CaseValues& m) { return static_cast<uint64_t>(m.Int(0, INT64_MAX - 1)); }
uint64_t Stream(CaseValues& m) { return m.Chance(0.5) ? 0 : Seed(m); }

void RandomFill(CaseValues& m, OpCase& c) {
  RandomAttributes a;
  a.seed = Seed(m);
  a.stream = Stream(m);
  a.low = m.Real(-3, 3);
  a.high = c.op == OpCode::kRandomUniform ? a.low + m.Real(0, 3) : m.Real(0, 2);
  if (m.Chance(0.1)) a.high = c.op == OpCode::kRandomUniform ? std::max(a.low, 0.0) : 0;
  c.attributes = a;
  c.outputs = {m.Result(c.dtype, m.AnyShape(0, 4))};
}

double Probability(CaseValues& m) {
  return m.Chance(0.3) ? static_cast<double>(m.Int(0, 1)) : m.Real(0, 1);
}

void Bernoulli(CaseValues& m, OpCase& c) {
  c.attributes = BernoulliAttributes{Seed(m), Stream(m), Probability(m)};
  c.outputs = {m.Result(c.dtype, m.AnyShape(0, 4))};
}

void Integers(CaseValues& m, OpCase& c) {
  RandomIntegersAttributes a{Seed(m), Stream(m), 0, 0};
  const bool wide = m.Chance(0.3);
  const int64_t least = c.dtype == DType::kInt32 ? INT32_MIN : INT64_MIN;
  const int64_t most = c.dtype == DType::kInt32 ? INT32_MAX : INT64_MAX;
  a.low = wide ? least : m.Int(-1000, 1000);
  a.high = wide ? most : a.low + m.Int(1, 100000);
  c.attributes = a;
  c.outputs = {m.Result(c.dtype, m.AnyShape(0, 4))};
}

void Permutation(CaseValues& m, OpCase& c) {
  c.attributes = PermutationAttributes{Seed(m), Stream(m)};
  c.outputs = {m.Result(c.dtype, {m.Chance(0.05) ? m.Int(1000, 5000) : m.Size(257)})};
}

void Dropout(CaseValues& m, OpCase& c) {
  c.attributes = DropoutAttributes{Seed(m), Stream(m), std::min(Probability(m), 0.95)};
  const Shape shape = m.AnyShape(0, 4);
  c.inputs = {m.Numbers(c.dtype, shape, m.Chance(0.3))};
  c.outputs = {m.Result(c.dtype, shape)};
}

}  // namespace

CaseMaker FindRandomCases(OpCode op) {
  switch (op) {
    case OpCode::kRandomUniform:
    case OpCode::kRandomNormal:
      return &RandomFill;
    case OpCode::kRandomBernoulli:
      return &Bernoulli;
    case OpCode::kRandomIntegers:
      return &Integers;
    case OpCode::kRandomPermutation:
      return &Permutation;
    case OpCode::kDropout:
      return &Dropout;
    default:
      return nullptr;
  }
}

}  // namespace tidepool
