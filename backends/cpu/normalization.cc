// Batch normalisation of f32 arrays. Statistics are corrected two-pass sums: right for
// means far larger than the deviation. Work is cut by the shape alone, and sums of the pieces are
// added in their order: the same bits for any number of threads.
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/backends/cpu/normalization_columns.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

size_t ColumnScratchBytes(const KernelCall& call) {
  return ColumnScratch::Bytes(Columns(call.inputs[0]));
}

// Each channel is a group.
void RunBatchNorm(const KernelCall& call) {
  const Columns c(call.inputs[0]);
  NormalizeGroups(call, c, 1, ColumnScratch(c, call.scratch), call.inputs[0].as<float>(),
                  call.inputs[1].as<float>(), call.inputs[2].as<float>(),
                  call.attrs<NormalizationAttributes>().epsilon, call.outputs[0].as<float>(),
                  {call.outputs[1].as<float>(), call.outputs[2].as<float>()});
}

void RunBatchNormInference(const KernelCall& call) {
  const Columns c(call.inputs[0]);
  const ColumnScratch scratch(c, call.scratch);
  const float* x = call.inputs[0].as<float>();
  float* z = call.outputs[0].as<float>();
  const double epsilon = call.attrs<NormalizationAttributes>().epsilon;
  float *center = scratch.tiles[0], *factor = scratch.tiles[1], *offset = scratch.tiles[2];
  for (int64_t i = 0; i < c.channels; ++i) {
    center[i] = call.inputs[3].as<float>()[i];
    factor[i] = static_cast<float>(call.inputs[1].as<float>()[i] /
                                   std::sqrt(call.inputs[4].as<float>()[i] + epsilon));
    offset[i] = call.inputs[2].as<float>()[i];
  }
  for (float* tile : {center, factor, offset}) Spread(c, tile);
  ForEachPiece(call, c, [&](int64_t, int64_t begin, int64_t count) {
    NetworkLoops().column_affine(x + begin, center, factor, offset, count, c.wide, z + begin);
  });
}

void RunBatchNormGrad(const KernelCall& call) {
  const Columns c(call.inputs[0]);
  const ColumnScratch scratch(c, call.scratch);
  NormalizeGroupsGrad(call, c, 1, scratch, call.inputs[0].as<float>(), call.inputs[1].as<float>(),
                      {call.inputs[2].as<float>(), call.inputs[3].as<float>()},
                      call.inputs[4].as<float>(), call.outputs[0].as<float>());
  for (int64_t i = 0; i < c.channels; ++i) {
    call.outputs[1].as<float>()[i] = static_cast<float>(scratch.totals[2 * i + 1]);
    call.outputs[2].as<float>()[i] = static_cast<float>(scratch.totals[2 * i]);
  }
}

const NetworkKernels registrar({
    {OpCode::kBatchNorm, &RunBatchNorm, &ColumnScratchBytes},
    {OpCode::kBatchNormInference, &RunBatchNormInference, &ColumnScratchBytes},
    {OpCode::kBatchNormGrad, &RunBatchNormGrad, &ColumnScratchBytes},
});

}  // namespace
}  // namespace tidepool::cpu
