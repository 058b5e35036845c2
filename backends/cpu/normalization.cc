// Batch normalisation of f32 arrays. Statistics are corrected two-pass sums: right for
// means far larger than the deviation. Work is cut by the shape alone, and sums of the pieces are
// added in their order: the same bits for any number of threads.
#include <algorithm>
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

void RunBatchNorm(const KernelCall& call) {
  const Columns c(call.inputs[0]);
  const ColumnScratch scratch(c, call.scratch);
  const float* x = call.inputs[0].as<float>();
  const float* scale = call.inputs[1].as<float>();
  const float* shift = call.inputs[2].as<float>();
  float* z = call.outputs[0].as<float>();
  float* means = call.outputs[1].as<float>();
  float* inverses = call.outputs[2].as<float>();
  const double epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const NnLoops& loops = NetworkLoops();
  float *center = scratch.tiles[0], *factor = scratch.tiles[1], *offset = scratch.tiles[2];
  const double rows = c.rows();
  // Near the mean; the second pass finds how near.
  SumColumns(
      call, c, scratch,
      [&](int64_t begin, int64_t count, double* sums, double*) {
        loops.column_sums(x + begin, count, c.wide, sums);
      },
      [&](int64_t i, double sum, double) { center[i] = static_cast<float>(sum / rows); });
  Spread(c, center);
  SumColumns(
      call, c, scratch,
      [&](int64_t begin, int64_t count, double* sums, double* squares) {
        loops.column_moments(x + begin, center, count, c.wide, sums, squares);
      },
      [&](int64_t i, double sum, double squares) {
        const double rest = sum / rows;
        const double spread = squares / rows - rest * rest;
        const double inverse = 1 / std::sqrt((spread < 0 ? 0 : spread) + epsilon);
        means[i] = static_cast<float>(center[i] + rest);
        inverses[i] = static_cast<float>(inverse);
        factor[i] = static_cast<float>(inverse * scale[i]);
        offset[i] = static_cast<float>(shift[i] - rest * inverse * scale[i]);
      });
  Spread(c, factor);
  Spread(c, offset);
  ForEachPiece(call, c, [&](int64_t, int64_t begin, int64_t count) {
    loops.column_affine(x + begin, center, factor, offset, count, c.wide, z + begin);
  });
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
  const float* x = call.inputs[0].as<float>();
  const float* scale = call.inputs[1].as<float>();
  const float* means = call.inputs[2].as<float>();
  const float* inverses = call.inputs[3].as<float>();
  const float* dz = call.inputs[4].as<float>();
  float* dx = call.outputs[0].as<float>();
  const NnLoops& loops = NetworkLoops();
  float *center = scratch.tiles[0], *factor = scratch.tiles[1], *offset = scratch.tiles[2],
        *slope = scratch.tiles[3];
  const double rows = c.rows();
  std::copy_n(means, c.channels, center);
  Spread(c, center);
  SumColumns(
      call, c, scratch,
      [&](int64_t begin, int64_t count, double* sums, double* products) {
        loops.column_products(x + begin, center, dz + begin, count, c.wide, sums, products);
      },
      [&](int64_t i, double sum, double products) {
        const double inverse = inverses[i], dscale = products * inverse;
        call.outputs[1].as<float>()[i] = static_cast<float>(dscale);
        call.outputs[2].as<float>()[i] = static_cast<float>(sum);
        const double size = inverse * scale[i];
        factor[i] = static_cast<float>(size);
        offset[i] = static_cast<float>(size * sum / rows);
        slope[i] = static_cast<float>(size * inverse * dscale / rows);
      });
  for (float* tile : {factor, offset, slope}) Spread(c, tile);
  ForEachPiece(call, c, [&](int64_t, int64_t begin, int64_t count) {
    loops.column_grad(x + begin, center, dz + begin, factor, offset, slope, count, c.wide,
                      dx + begin);
  });
}

const NetworkKernels registrar({
    {OpCode::kBatchNorm, &RunBatchNorm, &ColumnScratchBytes},
    {OpCode::kBatchNormInference, &RunBatchNormInference, &ColumnScratchBytes},
    {OpCode::kBatchNormGrad, &RunBatchNormGrad, &ColumnScratchBytes},
});

}  // namespace
}  // namespace tidepool::cpu
