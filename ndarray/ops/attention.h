// Attention: softmax(scale * query key^T + mask) value, with its gradient. Dao et al., "FlashAttention"
// (2022): keys are taken a block at a time and the softmax is corrected on the way, so that no backend
// of ours ever has the matrix of scores; memory grows with queries plus keys, not with their product.
//
//   Attended a = Attention(query, key, value, {.causal = true});  // a.output [batch, heads, queries, width]
//
// query [batch, heads, queries, width], key [batch, key heads, keys, width], value [batch, key heads, keys,
// value width] of one float type (f32, f64, f16, bf16). Heads are a multiple of key heads: so many that
// stand side by side share one (grouped queries). Views with any strides are read where they lie, so
// [batch, length, heads, width] needs a Transpose({0, 2, 1, 3}) and no copy.
//
// mask, which may be null, broadcasts to [batch, heads, queries, keys]: of the query's type it is added to
// the scores (-infinity: not seen), of bool it says which keys are seen; it has no gradient. With `causal`
// query i sees the keys up to first_query + i alone (queries of a text that goes on: first_query = length
// of what came before). A query that sees nothing gives zeros. What is not seen should be finite: in a
// block some of which is seen it is multiplied by 0.
//
// Results are in the current place. Errors: kInvalidArgument naming operand, shape and type.
#ifndef TIDEPOOL_NDARRAY_OPS_ATTENTION_H_
#define TIDEPOOL_NDARRAY_OPS_ATTENTION_H_

#include "tidepool/ndarray/kernel/attributes_attention.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

struct Attended {
  NDArray output;       // [batch, heads, queries, value width]
  NDArray log_sum_exp;  // [batch, heads, queries], of the scores; f64 for f64 and f32 otherwise
};
struct AttentionGradients {
  NDArray query, key, value;  // as the operands
};

Attended Attention(const NDArray& query, const NDArray& key, const NDArray& value,
                   const AttentionAttributes& attributes = {}, const NDArray* mask = nullptr);
// Into arrays of those shapes and any strides, so that [batch, length, heads, width] can be written by a view.
void AttentionInto(const NDArray& query, const NDArray& key, const NDArray& value, Attended& result,
                   const AttentionAttributes& attributes = {}, const NDArray* mask = nullptr);
// From what Attention returned for the same operands. The scores are computed again.
AttentionGradients AttentionGrad(const NDArray& query, const NDArray& key, const NDArray& value,
                                 const Attended& attended, const NDArray& output_gradient,
                                 const AttentionAttributes& attributes = {},
                                 const NDArray* mask = nullptr);
void AttentionGradInto(const NDArray& query, const NDArray& key, const NDArray& value,
                       const Attended& attended, const NDArray& output_gradient,
                       AttentionGradients& result, const AttentionAttributes& attributes = {},
                       const NDArray* mask = nullptr);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_ATTENTION_H_
