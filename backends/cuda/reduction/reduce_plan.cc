#include "tidepool/backends/cuda/reduction/reduce_plan.h"

#include <algorithm>
#include <cstdlib>

namespace tidepool::cuda {
namespace {

constexpr int64_t kWantedBlocks = 512;   // keeps every device busy
constexpr int64_t kLeastPerThread = 16;  // elements, below which another part does not pay
constexpr int64_t kMostSplits = 1024;
constexpr int64_t kUnroll = 4;  // of the kernel's loop

int64_t PowerOfTwo(int64_t least) {
  int64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

void ChooseSlots(bool along, ReducePlan* plan) {
  int64_t lanes;
  if (along) {
    const int64_t runs = (plan->count + plan->run - 1) / plan->run;
    lanes = runs > kBlockThreads ? kBlockThreads : std::min<int64_t>(32, runs);
  } else {
    const int64_t side_by_side = std::min<int64_t>(32, PowerOfTwo(plan->outputs / plan->width));
    lanes = std::min(kBlockThreads / side_by_side, (plan->count + 3) / 4);
  }
  plan->slots = {static_cast<int>(PowerOfTwo(std::max<int64_t>(1, lanes))), along};
  const int64_t blocks = std::max<int64_t>(1, plan->output_blocks());
  const int64_t per_thread = std::max<int64_t>(kLeastPerThread, kUnroll * plan->run);
  const int64_t most = std::min(plan->count / (plan->slots.lanes * per_thread), kMostSplits);
  const int64_t splits = std::clamp<int64_t>(kWantedBlocks / blocks, 1, std::max<int64_t>(1, most));
  const int64_t unit = plan->slots.lanes * std::max<int64_t>(kUnroll, plan->run);
  plan->chunk = std::max<int64_t>(1, (plan->count + splits - 1) / splits);
  if (splits > 1) plan->chunk = (plan->chunk + unit - 1) / unit * unit;
  plan->splits = std::max<int64_t>(1, (plan->count + plan->chunk - 1) / plan->chunk);
}

// Whether lanes may make `width` outputs each: they and their elements lie side by side, at places that are
// multiples of the width in every row.
bool TakesColumns(const ReducePlan& plan, int width) {
  const ReduceAxes &kept = plan.kept, &reduced = plan.reduced;
  return kept.rank == 1 && kept.x_strides[0] == 1 && plan.outputs % width == 0 &&
         reduced.rank == 1 && reduced.x_strides[0] % width == 0;
}

}  // namespace

void ReduceAxes::Append(int64_t size, int64_t x_stride, int64_t z_stride) {
  if (size == 1) return;
  if (rank > 0 && x_strides[rank - 1] == x_stride * size &&
      z_strides[rank - 1] == z_stride * size) {
    dims[rank - 1] *= size;
    x_strides[rank - 1] = x_stride;
    z_strides[rank - 1] = z_stride;
    return;
  }
  dims[rank] = size;
  x_strides[rank] = x_stride;
  z_strides[rank++] = z_stride;
}

ReducePlan MakeReducePlan(const TensorRef& x, uint32_t axes, const TensorRef& z, int width) {
  ReducePlan plan;
  int kept = 0;
  for (int i = 0; i < x.rank; ++i) {
    if ((axes >> i & 1) != 0) {
      plan.reduced.Append(x.dims[i], x.strides[i], 0);
      plan.count *= x.dims[i];
    } else {
      plan.kept.Append(x.dims[i], x.strides[i], z.strides[kept++]);
      plan.outputs *= x.dims[i];
    }
  }
  auto last_stride = [](const ReduceAxes& part) {
    return part.rank == 0 ? INT64_MAX : std::abs(part.x_strides[part.rank - 1]);
  };
  const bool along = plan.kept.rank == 0 || last_stride(plan.reduced) <= last_stride(plan.kept);
  if (along && plan.reduced.rank == 1 && plan.reduced.x_strides[0] == 1) {
    plan.run = static_cast<int>(16 / DTypeBytes(x.dtype));
  }
  if (!along && TakesColumns(plan, width)) plan.width = width;
  ChooseSlots(along, &plan);
  return plan;
}

ReducePlan PlanOfRows(int64_t rows, int64_t columns, int width) {
  ReducePlan plan;
  plan.outputs = rows;
  plan.count = columns;
  plan.kept.Append(rows, columns, 1);
  plan.reduced.Append(columns, 1, 0);
  plan.run = width;
  ChooseSlots(true, &plan);
  return plan;
}

ReducePlan PlanOfColumns(int64_t rows, int64_t columns, int width) {
  ReducePlan plan;
  plan.outputs = columns;
  plan.count = rows;
  plan.kept.Append(columns, 1, 1);
  plan.reduced.Append(rows, columns, 0);
  if (TakesColumns(plan, width)) plan.width = width;
  ChooseSlots(false, &plan);
  return plan;
}

ReducePlan PlanOfOutputs(int64_t outputs, int64_t count) {
  ReducePlan plan;
  plan.outputs = outputs;
  plan.count = count;
  plan.kept.Append(outputs, 0, 1);
  plan.reduced.Append(count, 0, 0);
  ChooseSlots(false, &plan);
  return plan;
}

}  // namespace tidepool::cuda
