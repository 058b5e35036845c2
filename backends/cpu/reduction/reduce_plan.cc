#include "tidepool/backends/cpu/reduction/reduce_plan.h"

#include <cstdlib>

namespace tidepool::cpu {
namespace {

struct PlannedAxis : ReduceAxis {
  bool reduced = false;
};

// Outermost first; the number of axes.
int Collect(const TensorRef& x, const int64_t* x_strides, const TensorRef& z, uint32_t reduced,
            PlannedAxis* axes) {
  int count = 0, kept = 0;
  for (int i = 0; i < x.rank; ++i) {
    const bool is_reduced = (reduced >> i & 1) != 0;
    const int64_t z_stride = is_reduced ? 0 : z.strides[kept++];
    if (x.dims[i] != 1) axes[count++] = {{x.dims[i], x_strides[i], z_stride}, is_reduced};
  }
  // By insertion, which is stable and, unlike std::stable_sort, needs no memory.
  for (int i = 1; i < count; ++i) {
    const PlannedAxis axis = axes[i];
    int at = i;
    for (; at > 0 && std::abs(axes[at - 1].x_stride) < std::abs(axis.x_stride); --at) {
      axes[at] = axes[at - 1];
    }
    axes[at] = axis;
  }
  int merged = 0;
  for (int i = 0; i < count; ++i) {
    PlannedAxis* last = merged > 0 ? &axes[merged - 1] : nullptr;
    if (last != nullptr && last->reduced == axes[i].reduced &&
        last->x_stride == axes[i].x_stride * axes[i].size &&
        last->z_stride == axes[i].z_stride * axes[i].size) {
      last->size *= axes[i].size;
      last->x_stride = axes[i].x_stride;
      last->z_stride = axes[i].z_stride;
    } else {
      axes[merged++] = axes[i];
    }
  }
  return merged;
}

}  // namespace

int64_t ReduceAxes::size() const {
  int64_t product = 1;
  for (int i = 0; i < count; ++i) product *= axes[i].size;
  return product;
}

int64_t ReduceAxes::XOffset(int64_t index) const {
  int64_t offset = 0;
  for (int i = count - 1; i >= 0; --i) {
    offset += index % axes[i].size * axes[i].x_stride;
    index /= axes[i].size;
  }
  return offset;
}

int64_t ReduceAxes::ZOffset(int64_t index) const {
  int64_t offset = 0;
  for (int i = count - 1; i >= 0; --i) {
    offset += index % axes[i].size * axes[i].z_stride;
    index /= axes[i].size;
  }
  return offset;
}

ReduceAxis ReduceAxes::TakeLast() { return count > 0 ? axes[--count] : ReduceAxis(); }

bool MakeReducePlan(const TensorRef& x, const TensorRef& z, uint32_t reduced, ReducePlan* plan) {
  PlannedAxis axes[kMaxRank];
  int count = Collect(x, x.strides, z, reduced, axes);
  const bool in_place = count == 0 || axes[count - 1].x_stride == 1;
  if (!in_place) {
    int64_t dense[kMaxRank];
    int64_t stride = 1;
    for (int i = x.rank - 1; i >= 0; --i) dense[i] = stride, stride *= x.dims[i];
    count = Collect(x, dense, z, reduced, axes);
  }
  *plan = ReducePlan();
  if (count > 0) {
    plan->inner = axes[count - 1];
    plan->inner_is_reduced = axes[count - 1].reduced;
  }
  for (int i = 0; i + 1 < count; ++i) {
    ReduceAxes& list = axes[i].reduced ? plan->reduced : plan->kept;
    list.axes[list.count++] = axes[i];
  }
  return in_place;
}

}  // namespace tidepool::cpu
