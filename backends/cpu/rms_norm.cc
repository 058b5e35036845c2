// Normalisation by the root of the mean square of f32 arrays, row by row.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kRowGrain = 16;
constexpr int64_t kMostPieces = 32;

void RunRmsNorm(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const int64_t n = x.dims[x.rank - 1], rows = call.outputs[1].NumElements();
  const float* scale = call.inputs[1].as<float>();
  const double epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const NnLoops& loops = NetworkLoops();
  ParallelFor(call.threads, rows, kRowGrain, rows * n * 2, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* in = x.as<float>() + row * n;
      const double square = loops.row_squares(in, n) / static_cast<double>(n);
      const auto inverse = static_cast<float>(1 / std::sqrt(square + epsilon));
      call.outputs[1].as<float>()[row] = inverse;
      loops.row_scale(in, inverse, scale, call.outputs[0].as<float>() + row * n, n);
    }
  });
}

// Rows are cut into pieces by the shape alone, whose sums are added in their order.
struct RowPieces {
  int64_t n, rows, piece, pieces;

  explicit RowPieces(const KernelCall& call)
      : n(call.inputs[0].dims[call.inputs[0].rank - 1]), rows(call.inputs[2].NumElements()) {
    piece = std::max(kRowGrain, (rows + kMostPieces - 1) / kMostPieces);
    pieces = (rows + piece - 1) / piece;
  }
};

size_t GradScratch(const KernelCall& call) {
  const RowPieces p(call);
  return static_cast<size_t>(p.n * p.pieces) * sizeof(float);
}

void RunRmsNormGrad(const KernelCall& call) {
  const RowPieces p(call);
  const float* x = call.inputs[0].as<float>();
  const float* scale = call.inputs[1].as<float>();
  const float* inverses = call.inputs[2].as<float>();
  const float* dz = call.inputs[3].as<float>();
  float* dx = call.outputs[0].as<float>();
  float* sums = static_cast<float*>(call.scratch);
  std::fill_n(sums, p.n * p.pieces, 0.0f);
  ParallelFor(call.threads, p.pieces, 1, 4 * p.rows * p.n, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t last = std::min(p.rows, (piece + 1) * p.piece);
      for (int64_t row = piece * p.piece; row < last; ++row) {
        NetworkLoops().row_rms_grad(x + row * p.n, dz + row * p.n, scale, inverses[row], dx + row * p.n,
                                    sums + p.n * piece, p.n);
      }
    }
  });
  for (int64_t i = 0; i < p.n; ++i) {
    double dscale = 0;
    for (int64_t piece = 0; piece < p.pieces; ++piece) dscale += sums[p.n * piece + i];
    call.outputs[1].as<float>()[i] = static_cast<float>(dscale);
  }
}

const NetworkKernels registrar({
    {OpCode::kRmsNorm, &RunRmsNorm},
    {OpCode::kRmsNormGrad, &RunRmsNormGrad, &GradScratch},
});

}  // namespace
}  // namespace tidepool::cpu
