#include "tidepool/ndarray/ops/attention.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/nn_checks.h"
#include "tidepool/ndarray/ops/normalization.h"

namespace tidepool {
namespace {

void Check(OpCode op, const NDArray& query, const NDArray& key, const NDArray& value,
           const AttentionAttributes& attributes) {
  const char* name = Info(op).name;
  CheckFloating(name, "query", query);
  CheckRank(name, "query", query, 4);
  CheckRank(name, "key", key, 4);
  CheckRank(name, "value", value, 4);
  CheckDType(name, "key", key, query.dtype());
  CheckDType(name, "value", value, query.dtype());
  const int64_t key_heads = key.dim(1);
  if (query.dim(3) < 1 || key_heads < 1 || query.dim(1) % key_heads != 0) {
    ThrowInvalidArgument(
        absl::StrCat("Op [", name, "]: query has shape ", query.shape().ToString(),
                     ", key has shape ", key.shape().ToString(),
                     "; expected a width of at least 1 and heads that are a multiple of key's"));
  }
  CheckShape(name, "key", key, {query.dim(0), key_heads, key.dim(2), query.dim(3)});
  CheckShape(name, "value", value, {query.dim(0), key_heads, key.dim(2), value.dim(3)});
  if (!std::isfinite(attributes.scale) || attributes.first_query < 0) {
    ThrowInvalidArgument(absl::StrCat("Op [", name, "]: scale ", attributes.scale, ", first_query ",
                                      attributes.first_query,
                                      ", expected a finite scale and at least 0"));
  }
}

// The mask as kernels take it: of the query's type, rank 4, sizes 1 or those of the scores.
NDArray MaskOf(OpCode op, const NDArray& mask, const NDArray& query, const NDArray& key) {
  const char* name = Info(op).name;
  const Shape scores{query.dim(0), query.dim(1), query.dim(2), key.dim(2)};
  bool fits = mask.rank() <= 4;
  for (int i = 1; fits && i <= mask.rank(); ++i) {
    const int64_t size = mask.dim(mask.rank() - i);
    fits = size == 1 || size == scores[4 - i];
  }
  if (!fits) {
    ThrowInvalidArgument(absl::StrCat("Op [", name, "]: mask has shape ", mask.shape().ToString(),
                                      ", expected one that broadcasts to ", scores.ToString()));
  }
  NDArray added = mask;
  if (mask.dtype() == DType::kBool) {
    added = Where(mask, Zeros({}, query.dtype(), Place::CurrentOn(mask.device())),
                  Full({}, -std::numeric_limits<double>::infinity(), query.dtype(),
                       Place::CurrentOn(mask.device())));
  } else {
    CheckDType(name, "mask", mask, query.dtype());
  }
  while (added.rank() < 4) added = added.ExpandDims(0);
  return added;
}

void CheckGiven(OpCode op, const char* operand, const NDArray& array, const Shape& shape,
                DType dtype) {
  array.CheckAlive(Info(op).name, operand);
  CheckShape(Info(op).name, operand, array, shape);
  CheckDType(Info(op).name, operand, array, dtype);
}

Shape OutputShape(const NDArray& query, const NDArray& value) {
  return {query.dim(0), query.dim(1), query.dim(2), value.dim(3)};
}

Shape RowsShape(const NDArray& query) { return {query.dim(0), query.dim(1), query.dim(2)}; }

// Where outputs are given, they are checked; else they are made.
void Run(const NDArray& query, const NDArray& key, const NDArray& value, Attended& result,
         bool given, const AttentionAttributes& attributes, const NDArray* mask) {
  constexpr OpCode kOp = OpCode::kAttention;
  CheckOperands(kOp, {&query, &key, &value, mask});
  Check(kOp, query, key, value, attributes);
  const DType dtype = query.dtype(), statistics = StatisticsType(dtype);
  NDArray added;
  if (mask != nullptr) added = MaskOf(kOp, *mask, query, key);
  if (given) {
    CheckGiven(kOp, "Z", result.output, OutputShape(query, value), dtype);
    CheckGiven(kOp, "log_sum_exp", result.log_sum_exp, RowsShape(query), statistics);
  } else {
    const Place place = ResultPlace(kOp, {&query, &key, &value, mask});
    result = {NDArray(OutputShape(query, value), dtype, place),
              NDArray(RowsShape(query), statistics, place)};
  }
  Dispatch(kOp, {&query, &key, &value, mask != nullptr ? &added : nullptr},
           {&result.output, &result.log_sum_exp}, &attributes);
}

void RunGrad(const NDArray& query, const NDArray& key, const NDArray& value,
             const Attended& attended, const NDArray& output_gradient, AttentionGradients& result,
             bool given, const AttentionAttributes& attributes, const NDArray* mask) {
  constexpr OpCode kOp = OpCode::kAttentionGrad;
  const NDArray &output = attended.output, &log_sum_exp = attended.log_sum_exp;
  CheckOperands(kOp, {&query, &key, &value, mask, &output, &log_sum_exp, &output_gradient});
  Check(kOp, query, key, value, attributes);
  const char* name = Info(kOp).name;
  const DType dtype = query.dtype();
  CheckShape(name, "Z", output, OutputShape(query, value));
  CheckDType(name, "Z", output, dtype);
  CheckShape(name, "log_sum_exp", log_sum_exp, RowsShape(query));
  CheckDType(name, "log_sum_exp", log_sum_exp, StatisticsType(dtype));
  CheckLike(name, "dZ", output_gradient, output);
  NDArray added;
  if (mask != nullptr) added = MaskOf(kOp, *mask, query, key);
  if (given) {
    CheckGiven(kOp, "dquery", result.query, query.shape(), dtype);
    CheckGiven(kOp, "dkey", result.key, key.shape(), dtype);
    CheckGiven(kOp, "dvalue", result.value, value.shape(), dtype);
  } else {
    const Place place =
        ResultPlace(kOp, {&query, &key, &value, mask, &output, &log_sum_exp, &output_gradient});
    result = {NDArray(query.shape(), dtype, place), NDArray(key.shape(), dtype, place),
              NDArray(value.shape(), dtype, place)};
  }
  Dispatch(kOp,
           {&query, &key, &value, mask != nullptr ? &added : nullptr, &output, &log_sum_exp,
            &output_gradient},
           {&result.query, &result.key, &result.value}, &attributes);
}

}  // namespace

Attended Attention(const NDArray& query, const NDArray& key, const NDArray& value,
                   const AttentionAttributes& attributes, const NDArray* mask) {
  Attended result;
  Run(query, key, value, result, /*given=*/false, attributes, mask);
  return result;
}

void AttentionInto(const NDArray& query, const NDArray& key, const NDArray& value, Attended& result,
                   const AttentionAttributes& attributes, const NDArray* mask) {
  Run(query, key, value, result, /*given=*/true, attributes, mask);
}

AttentionGradients AttentionGrad(const NDArray& query, const NDArray& key, const NDArray& value,
                                 const Attended& attended, const NDArray& output_gradient,
                                 const AttentionAttributes& attributes, const NDArray* mask) {
  AttentionGradients result;
  RunGrad(query, key, value, attended, output_gradient, result, /*given=*/false, attributes, mask);
  return result;
}

void AttentionGradInto(const NDArray& query, const NDArray& key, const NDArray& value,
                       const Attended& attended, const NDArray& output_gradient,
                       AttentionGradients& result, const AttentionAttributes& attributes,
                       const NDArray* mask) {
  RunGrad(query, key, value, attended, output_gradient, result, /*given=*/true, attributes, mask);
}

}  // namespace tidepool
