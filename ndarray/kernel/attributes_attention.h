// Attributes of attention. See attributes.h.
#ifndef TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_ATTENTION_H_
#define TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_ATTENTION_H_

#include <cmath>
#include <cstdint>

namespace tidepool {

// Z = softmax(scale * query key^T + mask) value, row by row.
struct AttentionAttributes {
  double scale = 0;         // 0: 1 / sqrt(width)
  bool causal = false;      // query i sees the keys up to first_query + i
  int64_t first_query = 0;  // where the first query stands among the keys: how many came before it

  double ScaleOf(int64_t width) const {
    return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(width));
  }
  // How many of the first `keys` keys a query sees.
  int64_t Visible(int64_t query, int64_t keys) const {
    if (!causal) return keys;
    const int64_t seen = first_query + query + 1;
    return seen < 0 ? 0 : seen < keys ? seen : keys;
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_ATTENTION_H_
