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
    ThrowInvalidArgument(absl::StrCat(
        "Op [", name, "]: query has shape ", query.shape().ToString(), ", key has shape ",
        key.shape().ToString(), "; expected a width of at least 1 and heads that are a multiple of key's"));
  }
  CheckShape(name, "key", key, {query.dim(0), key_heads, key.dim(2), query.dim(3)});
  CheckShape(name, "value", value, {query.dim(0), key_heads, key.dim(2), value.dim(3)});
  if (!std::isfinite(attributes.scale) || attributes.first_query < 0) {
    ThrowInvalidArgument(absl::StrCat("Op [", name, "]: scale ", attributes.scale, ", first_query ",
                                      attributes.first_query, ", expected a finite scale and at least 0"));
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

}  // namespace

Attended Attention(const NDArray& query, const NDArray& key, const NDArray& value,
                   const AttentionAttributes& attributes, const NDArray* mask) {
  constexpr OpCode kOp = OpCode::kAttention;
  CheckOperands(kOp, {&query, &key, &value, mask});
  Check(kOp, query, key, value, attributes);
  NDArray added;
  if (mask != nullptr) added = MaskOf(kOp, *mask, query, key);
  const Place place = ResultPlace(kOp, {&query, &key, &value, mask});
  Attended result{
      NDArray({query.dim(0), query.dim(1), query.dim(2), value.dim(3)}, query.dtype(), place),
      NDArray({query.dim(0), query.dim(1), query.dim(2)}, StatisticsType(query.dtype()), place)};
  Dispatch(kOp, {&query, &key, &value, mask != nullptr ? &added : nullptr},
           {&result.output, &result.log_sum_exp}, &attributes);
  return result;
}

AttentionGradients AttentionGrad(const NDArray& query, const NDArray& key, const NDArray& value,
                                 const Attended& attended, const NDArray& output_gradient,
                                 const AttentionAttributes& attributes, const NDArray* mask) {
  constexpr OpCode kOp = OpCode::kAttentionGrad;
  const NDArray &output = attended.output, &log_sum_exp = attended.log_sum_exp;
  CheckOperands(kOp, {&query, &key, &value, mask, &output, &log_sum_exp, &output_gradient});
  Check(kOp, query, key, value, attributes);
  const char* name = Info(kOp).name;
  CheckShape(name, "Z", output, {query.dim(0), query.dim(1), query.dim(2), value.dim(3)});
  CheckDType(name, "Z", output, query.dtype());
  CheckShape(name, "log_sum_exp", log_sum_exp, {query.dim(0), query.dim(1), query.dim(2)});
  CheckDType(name, "log_sum_exp", log_sum_exp, StatisticsType(query.dtype()));
  CheckLike(name, "dZ", output_gradient, output);
  NDArray added;
  if (mask != nullptr) added = MaskOf(kOp, *mask, query, key);
  const Place place = ResultPlace(
      kOp, {&query, &key, &value, mask, &output, &log_sum_exp, &output_gradient});
  AttentionGradients result{NDArray(query.shape(), query.dtype(), place),
                            NDArray(key.shape(), query.dtype(), place),
                            NDArray(value.shape(), query.dtype(), place)};
  Dispatch(kOp,
           {&query, &key, &value, mask != nullptr ? &added : nullptr, &output, &log_sum_exp,
            &output_gradient},
           {&result.query, &result.key, &result.value}, &attributes);
  return result;
}

}  // namespace tidepool
