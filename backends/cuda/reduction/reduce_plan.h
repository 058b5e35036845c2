// How a reduction is laid over threads. Depends on shapes and strides only, so that results are the
// same on every device.
#ifndef TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCE_PLAN_H_
#define TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCE_PLAN_H_

#include <cstdint>

#include "tidepool/backends/cuda/common/slots.h"
#include "tidepool/ndarray/kernel/kernel.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool::cuda {

// Axes, row-major, merged where they are walked evenly. Strides in elements.
struct ReduceAxes {
  int rank = 0;
  int64_t dims[kMaxRank] = {}, x_strides[kMaxRank] = {}, z_strides[kMaxRank] = {};

  // An axis of size 1 is left out.
  void Append(int64_t size, int64_t x_stride, int64_t z_stride);
};

struct ReducePlan {
  ReduceAxes kept, reduced;
  int64_t outputs = 1, count = 1;  // elements of the result; elements that make one of them
  Slots slots;                     // a slot makes an output
  // Elements side by side that a lane takes at a time: 16 bytes of rows whose elements are dense, for
  // operators that read X alone; else 1.
  int run = 1;
  // Outputs side by side that a lane makes: 16 bytes of columns, for operators that take them so; else 1.
  int width = 1;
  // The elements of an output are cut in `splits` parts of `chunk` where there are few outputs;
  // what the parts give is merged by a second kernel.
  int64_t splits = 1, chunk = 1;

  int64_t partials() const { return splits > 1 ? outputs * splits : 0; }
  int64_t output_blocks() const {
    const int64_t of_block = static_cast<int64_t>(slots.count()) * width;
    return (outputs + of_block - 1) / of_block;
  }
};

// Of X with the axes in the mask reduced into Z. `width`: of an operator that takes columns by as many, else 1.
ReducePlan MakeReducePlan(const TensorRef& x, uint32_t axes, const TensorRef& z, int width = 1);
// Of a dense [rows, columns]: sums of rows give `rows` outputs. `width`: elements of 16 bytes, for
// operators that take runs of rows, or columns, by as many.
ReducePlan PlanOfRows(int64_t rows, int64_t columns, int width = 1);
ReducePlan PlanOfColumns(int64_t rows, int64_t columns, int width = 1);
// Of `outputs` whose elements an operator finds itself; neighbouring outputs' lie side by side.
ReducePlan PlanOfOutputs(int64_t outputs, int64_t count);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_REDUCTION_REDUCE_PLAN_H_
