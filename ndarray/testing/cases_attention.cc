// Attention: few and many queries and keys, grouped heads, masks of any broadcast shape, causal ones.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tidepool/ndarray/kernel/attributes_attention.h"
#include "tidepool/ndarray/testing/case_values.h"
#include "tidepool/ndarray/testing/op_case_groups.h"

namespace tidepool {
namespace {

void Attention(CaseValues& m, OpCase& c) {
  const bool large = m.Chance(0.06);
  const int64_t batch = m.Chance(0.04) ? 0 : m.Int(1, large ? 1 : 3),
                key_heads = m.Int(1, large ? 2 : 3);
  const int64_t heads = key_heads * (m.Chance(0.5) ? 1 : m.Int(1, 4));
  const int64_t queries = m.Chance(0.2) ? 1 : m.Size(large ? 257 : 33);
  const int64_t keys = large ? m.Int(200, 600) : m.Size(48);
  const int64_t width = m.NonZero(33), value_width = m.Chance(0.7) ? width : m.Size(33);
  AttentionAttributes a;
  if (m.Chance(0.3)) a.scale = m.Real(-1, 1);
  a.causal = m.Chance(0.5);
  if (m.Chance(0.4))
    a.first_query = m.Chance(0.5) ? std::max<int64_t>(0, keys - queries) : m.Int(0, 9);
  c.attributes = a;
  // Terms of sums that are about 1, of scores and of values.
  c.inner = 2 + static_cast<double>(width) / 8;
  const auto one_or = [&m](int64_t size) { return m.Chance(0.4) ? 1 : size; };
  OperandValues mask =
      m.Floats({one_or(batch), one_or(heads), one_or(queries), one_or(keys)}, false, c.dtype);
  if (m.Chance(0.5)) {
    for (double& value : mask.reals) {
      if (m.Chance(0.3)) value = -std::numeric_limits<double>::infinity();
    }
  }
  mask.present = m.Chance(0.5);
  c.inputs = {m.Floats({batch, heads, queries, width}, false, c.dtype),
              m.Floats({batch, key_heads, keys, width}, false, c.dtype),
              m.Floats({batch, key_heads, keys, value_width}, false, c.dtype), mask};
  const Shape output{batch, heads, queries, value_width}, rows{batch, heads, queries};
  const DType statistics = c.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  if (c.op == OpCode::kAttention) {
    if (m.Chance(0.1) && batch * queries > 0) c.inputs[0].reals[0] = NAN;
    c.outputs = {m.Result(c.dtype, output), m.Result(statistics, rows)};
    return;
  }
  // Weights that add up to about 1, and queries that have seen nothing.
  OperandValues log_sums = m.Floats(rows, false, statistics);
  for (double& value : log_sums.reals) {
    value = value + 1 + std::log(1 + static_cast<double>(keys));
    if (statistics == DType::kFloat32) value = static_cast<float>(value);
    if (m.Chance(0.02)) value = -std::numeric_limits<double>::infinity();
  }
  c.inputs.push_back(m.Floats(output, false, c.dtype));
  c.inputs.push_back(log_sums);
  c.inputs.push_back(m.Floats(output, false, c.dtype));
  c.outputs = {m.Result(c.dtype, c.inputs[0].shape), m.Result(c.dtype, c.inputs[1].shape),
               m.Result(c.dtype, c.inputs[2].shape)};
  c.inner = 4 + static_cast<double>(width + value_width) / 4;
}

}  // namespace

CaseMaker FindAttentionCases(OpCode op) {
  return op == OpCode::kAttention || op == OpCode::kAttentionGrad ? &Attention : nullptr;
}

}  // namespace tidepool
