// Walks up to four operands of one shape with their own strides, innermost axis last.
#ifndef TIDEPOOL_NDARRAY_KERNEL_STRIDED_LOOP_H_
#define TIDEPOOL_NDARRAY_KERNEL_STRIDED_LOOP_H_

#include <cstdint>

#include "tidepool/ndarray/shape.h"

namespace tidepool {

// Strides of `ref` seen as an array of `rank` dims `dims`: 0 where it broadcasts.
inline void BroadcastStrides(int ref_rank, const int64_t* ref_dims, const int64_t* ref_strides,
                             int rank, int64_t* strides) {
  const int lead = rank - ref_rank;
  for (int i = 0; i < rank; ++i) {
    strides[i] = i < lead || ref_dims[i - lead] == 1 ? 0 : ref_strides[i - lead];
  }
}

// Calls inner(offsets[N], count, inner_strides[N]) for each run along the last axis. Neighbouring
// axes that every operand walks evenly are merged first, so dense operands make one call.
template <int N, typename Inner>
void ForEachRun(int rank, const int64_t* dims, const int64_t (*strides)[kMaxRank], Inner inner) {
  int64_t d[kMaxRank + 1];
  int64_t s[N][kMaxRank + 1];
  int r = 0;
  for (int i = 0; i < rank; ++i) {
    if (dims[i] == 0) return;
    if (dims[i] == 1) continue;
    bool merges = r > 0;
    for (int n = 0; merges && n < N; ++n) merges = s[n][r - 1] == strides[n][i] * dims[i];
    if (merges) {
      d[r - 1] *= dims[i];
      for (int n = 0; n < N; ++n) s[n][r - 1] = strides[n][i];
      continue;
    }
    d[r] = dims[i];
    for (int n = 0; n < N; ++n) s[n][r] = strides[n][i];
    ++r;
  }
  int64_t inner_strides[N];
  int64_t offsets[N] = {};
  const int64_t count = r > 0 ? d[r - 1] : 1;
  for (int n = 0; n < N; ++n) inner_strides[n] = r > 0 ? s[n][r - 1] : 0;
  int64_t index[kMaxRank + 1] = {};
  for (;;) {
    inner(offsets, count, inner_strides);
    int axis = r - 2;
    for (; axis >= 0; --axis) {
      for (int n = 0; n < N; ++n) offsets[n] += s[n][axis];
      if (++index[axis] < d[axis]) break;
      for (int n = 0; n < N; ++n) offsets[n] -= s[n][axis] * d[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_STRIDED_LOOP_H_
