// What operators that pick, place and order elements take besides arrays. Axes are not negative.
#ifndef TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_INDEXING_H_
#define TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_INDEXING_H_

#include <cstdint>

namespace tidepool {

// gather: of X; scatter_add: of Z; top_k: of X.
struct AxisAttributes {
  int axis = 0;
};

// What becomes of an element and what is placed on it.
enum class ScatterReduction : uint8_t {
  kNone,
  kAdd,
  kMultiply,
  kMin,
  kMax
};  // kNone: written over

struct ScatterAttributes {
  ScatterReduction reduction = ScatterReduction::kNone;
};

// Converted to Z's type.
struct OneHotAttributes {
  double on = 1;
  double off = 0;
};

struct FlipAttributes {
  uint32_t axes = 0;  // bit i: axis i is reversed
};

// Elements [.., row, column] with column - row below `diagonal` (upper) or above it (lower) become 0.
struct TriangleAttributes {
  bool upper = false;
  int64_t diagonal = 0;
};

struct SortAttributes {
  int axis = 0;
  // Largest first, NaN first of all; equals still in their order.
  bool descending = false;
};

// Of cumprod as well.
struct CumSumAttributes {
  int axis = 0;
  bool reverse = false;    // sums of what comes after instead of before
  bool exclusive = false;  // without the element itself
};

struct SearchSortedAttributes {
  bool right = false;  // behind equal elements instead of before them
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_ATTRIBUTES_INDEXING_H_
