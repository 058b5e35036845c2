// How a reduction walks an array of any strides: few axes, the one of stride 1 innermost.
#ifndef TIDEPOOL_BACKENDS_CPU_REDUCTION_REDUCE_PLAN_H_
#define TIDEPOOL_BACKENDS_CPU_REDUCTION_REDUCE_PLAN_H_

#include <cstdint>

#include "tidepool/ndarray/kernel/kernel.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool::cpu {

struct ReduceAxis {
  int64_t size = 1, x_stride = 0, z_stride = 0;  // in elements; z_stride of kept axes
};

// Several axes as one index, row-major.
struct ReduceAxes {
  int count = 0;
  ReduceAxis axes[kMaxRank];

  int64_t size() const;
  // Of the element with this index.
  int64_t XOffset(int64_t index) const;
  int64_t ZOffset(int64_t index) const;
  // Takes the last axis away; one of size 1 when there is none.
  ReduceAxis TakeLast();
};

// Axes sorted by how far apart their elements lie, neighbours merged, those of size 1 left out.
struct ReducePlan {
  ReduceAxes kept, reduced;  // without `inner`
  ReduceAxis inner;          // x_stride 1, or size 1
  bool inner_is_reduced = true;
};

// `axes`: bit i for each reduced axis of x. False when no axis of x has stride 1: the plan is then
// for a dense copy of x.
bool MakeReducePlan(const TensorRef& x, const TensorRef& z, uint32_t axes, ReducePlan* plan);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_REDUCTION_REDUCE_PLAN_H_
