// Elementwise loops over spans of contiguous elements: the inner part of pointwise.h.
#ifndef TIDEPOOL_BACKENDS_CPU_POINTWISE_SPAN_H_
#define TIDEPOOL_BACKENDS_CPU_POINTWISE_SPAN_H_

#include <cstddef>
#include <cstdint>

#include "tidepool/backends/cpu/pointwise.h"
#include "tidepool/backends/cpu/pointwise_loops.h"

namespace tidepool::cpu {

inline constexpr int64_t kPointwiseBlock = 1024;  // elements of a buffer

struct PointwiseBuffer {
  alignas(64) std::byte bytes[kPointwiseBlock * 8];
};

// Where the operands are. `steps` is 1 (contiguous) or 0 (one element for all); the result is
// contiguous.
struct PointwiseSpan {
  const std::byte* in[kMostPointwiseInputs];
  int steps[kMostPointwiseInputs];
  std::byte* z;
};

// `stream`: writes past the caches.
void RunPointwiseSpan(const PointwiseOp& op, const LoopParameters& parameters,
                      const PointwiseSpan& span, int64_t count, bool stream = false);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_POINTWISE_SPAN_H_
