// The operands of a gather of slices as arrays that broadcast to its result's shape, for kernels that take any strides.
#ifndef TIDEPOOL_NDARRAY_KERNEL_GATHER_VIEWS_H_
#define TIDEPOOL_NDARRAY_KERNEL_GATHER_VIEWS_H_

#include <cstdint>

#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/kernel.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {

// Of a call, which it must not outlive. An element of the result is that of `x` at the same place and `step` times
// the index there further, in elements.
struct GatherViews {
  TensorRef x, indices;  // of the result's rank, with sizes of 1 where they do not vary
  int64_t step;          // from one slice to the next
  // Strides of an array like `indices` whose elements are the indices' numbers in row-major order: faults are told by those.
  int64_t index_places[kMaxRank];

  explicit GatherViews(const KernelCall& call) : x(call.inputs[0]), indices(call.inputs[1]) {
    const TensorRef& from = call.inputs[0];
    const TensorRef& at = call.inputs[1];
    const int axis = call.attrs<AxisAttributes>().axis;
    step = from.strides[axis];
    const int rank = call.outputs[0].rank;
    int64_t place = 1;
    for (int i = rank - 1; i >= 0; --i) {
      const bool is_index = i >= axis && i < axis + at.rank;
      const int of_x = i < axis ? i : i - at.rank + 1, of_index = i - axis;
      x_dims_[i] = is_index ? 1 : from.dims[of_x];
      x_strides_[i] = is_index ? 0 : from.strides[of_x];
      index_dims_[i] = is_index ? at.dims[of_index] : 1;
      index_strides_[i] = is_index ? at.strides[of_index] : 0;
      index_places[i] = is_index ? place : 0;
      if (is_index) place *= at.dims[of_index];
    }
    x.rank = indices.rank = rank;
    x.dims = x_dims_;
    x.strides = x_strides_;
    indices.dims = index_dims_;
    indices.strides = index_strides_;
  }
  GatherViews(const GatherViews&) = delete;
  GatherViews& operator=(const GatherViews&) = delete;

 private:
  int64_t x_dims_[kMaxRank], x_strides_[kMaxRank];
  int64_t index_dims_[kMaxRank], index_strides_[kMaxRank];
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_GATHER_VIEWS_H_
