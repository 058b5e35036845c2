// What attention and its gradient share: operands of any strides as matrices of a block of queries or
// keys, and the two element types. Scores are made a block at a time: kRows queries by kKeys keys.
#ifndef TIDEPOOL_BACKENDS_CPU_ATTENTION_ATTENTION_BLOCKS_H_
#define TIDEPOOL_BACKENDS_CPU_ATTENTION_ATTENTION_BLOCKS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tidepool/backends/cpu/attention/attention_loops.h"
#include "tidepool/backends/cpu/gemm/typed_product.h"
#include "tidepool/ndarray/kernel/attributes_attention.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool::cpu {

constexpr int64_t kRows = 128;
constexpr int64_t kKeys = 256;

inline const AttentionLoops<float>& LoopsOf(OfF32) { return AttentionLoopsF32(); }
inline const AttentionLoops<double>& LoopsOf(OfF64) { return kAttentionLoopsF64; }

// An operand [batch, heads, rows, columns].
template <typename T>
struct Heads {
  T* data;
  int64_t strides[4];

  explicit Heads(const TensorRef& ref) : data(ref.as<T>()) {
    for (int i = 0; i < 4; ++i) strides[i] = ref.strides[i];
  }
  T* At(int64_t batch, int64_t head, int64_t row) const {
    return data + batch * strides[0] + head * strides[1] + row * strides[2];
  }
  Matrix<T> From(int64_t batch, int64_t head, int64_t row) const {
    return {At(batch, head, row), strides[2], strides[3]};
  }
};

// Rows of queries that share a key head: of one head, or, where these are few, all of some heads.
struct RowBlock {
  int64_t batch, key_head, head, heads, query, queries;  // `queries` of each of `heads`

  int64_t rows() const { return heads * queries; }
  int64_t HeadOf(int64_t row) const { return head + row / queries; }
  int64_t QueryOf(int64_t row) const { return query + row % queries; }
};

class Geometry {
 public:
  explicit Geometry(const KernelCall& call)
      : attributes(call.attrs<AttentionAttributes>()),
        batch(call.inputs[0].dims[0]),
        heads(call.inputs[0].dims[1]),
        queries(call.inputs[0].dims[2]),
        width(call.inputs[0].dims[3]),
        key_heads(call.inputs[1].dims[1]),
        keys(call.inputs[1].dims[2]),
        value_width(call.inputs[2].dims[3]),
        group(heads / key_heads) {
    // Heads are joined where the rows of both are evenly spaced in every operand that has them.
    heads_together = 1;
    if (queries > 0 && queries < kRows && JoinsHeads(call)) {
      heads_together = std::max<int64_t>(1, std::min(group, kRows / queries));
    }
    head_blocks = (group + heads_together - 1) / heads_together;
    const int64_t pieces = (queries + kRows - 1) / kRows;
    rows_of_block = pieces == 0 ? 0 : (queries + pieces - 1) / pieces;
    query_blocks = pieces;
  }
  int64_t BlocksOfKeyHead() const { return head_blocks * query_blocks; }
  int64_t MostRows() const { return std::min(kRows, rows_of_block * heads_together); }
  int64_t MostKeys() const { return std::min(kKeys, keys); }
  RowBlock Block(int64_t of_batch, int64_t key_head, int64_t index) const {
    const int64_t first = index / query_blocks * heads_together;
    const int64_t query = index % query_blocks * rows_of_block;
    return {of_batch,
            key_head,
            key_head * group + first,
            std::min(heads_together, group - first),
            query,
            std::min(rows_of_block, queries - query)};
  }
  int64_t Work() const { return batch * heads * queries * keys * (width + value_width); }

  const AttentionAttributes attributes;
  const int64_t batch, heads, queries, width, key_heads, keys, value_width, group;
  int64_t heads_together, head_blocks, query_blocks, rows_of_block;

 private:
  bool JoinsHeads(const KernelCall& call) const {
    if (queries == 1) return true;
    const auto joins = [this](const TensorRef& ref) {
      return ref.strides[1] == queries * ref.strides[2];
    };
    return joins(call.inputs[0]) && (call.inputs.size() <= 6 || joins(call.inputs[6]));
  }
};

// The rows of a block as a matrix.
template <typename T>
Matrix<T> RowsOf(const Heads<T>& operand, const RowBlock& block) {
  Matrix<T> rows = operand.From(block.batch, block.head, block.query);
  if (block.queries == 1) rows.row_stride = operand.strides[1];
  return rows;
}

// What is added to the scores of a row from key `key` on: a number, or elements one after the other.
template <typename T>
class Mask {
 public:
  explicit Mask(const TensorRef& ref) : present_(ref.present) {
    if (!present_) return;
    data_ = ref.as<T>();
    for (int i = 0; i < 4; ++i) strides_[i] = ref.dims[i] == 1 ? 0 : ref.strides[i];
  }
  struct Row {
    T shift = 0;
    const T* elements = nullptr;
  };
  // `copy` has room for n where the elements lie apart.
  Row At(int64_t batch, int64_t head, int64_t query, int64_t key, int64_t n, T* copy) const {
    if (!present_) return {};
    const T* row = data_ + batch * strides_[0] + head * strides_[1] + query * strides_[2];
    if (strides_[3] == 0) return {*row, nullptr};
    row += key * strides_[3];
    if (strides_[3] == 1) return {0, row};
    for (int64_t i = 0; i < n; ++i) copy[i] = row[i * strides_[3]];
    return {0, copy};
  }

 private:
  bool present_;
  const T* data_ = nullptr;
  int64_t strides_[4] = {};
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_ATTENTION_ATTENTION_BLOCKS_H_
