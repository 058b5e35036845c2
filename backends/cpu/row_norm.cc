// Normalisation of rows of f32 arrays: by mean and deviation (layer normalisation), and by the root of the mean square. Work is
// cut by the shape alone, and sums of the pieces are added in their order: the same bits for any number of threads.
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

void RunLayerNorm(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const int64_t n = x.dims[x.rank - 1], rows = call.outputs[1].NumElements();
  const float* scale = call.inputs[1].as<float>();
  const float* shift = call.inputs[2].as<float>();
  float* z = call.outputs[0].as<float>();
  const double epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const NnLoops& loops = NetworkLoops();
  ParallelFor(call.threads, rows, kRowGrain, rows * n * 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      double mean, variance;
      loops.row_moments(x.as<float>() + row * n, n, &mean, &variance);
      const double inverse = 1 / std::sqrt(variance + epsilon);
      const float center = static_cast<float>(mean);
      call.outputs[1].as<float>()[row] = center;
      call.outputs[2].as<float>()[row] = static_cast<float>(inverse);
      // What rounding the mean leaves.
      const float offset = static_cast<float>((center - mean) * inverse);
      loops.row_affine(x.as<float>() + row * n, center, static_cast<float>(inverse), offset, scale,
                       shift, z + row * n, n);
    }
  });
}

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

// Of gradients. The statistics of a row are an operand each: the mean where there is one, then the inverse.
template <bool kMean>
struct RowPieces {
  int64_t n, rows, piece, pieces, sums;  // floats of a piece: of scale's gradient, and of shift's

  explicit RowPieces(const KernelCall& call)
      : n(call.inputs[0].dims[call.inputs[0].rank - 1]), rows(call.inputs[2].NumElements()) {
    piece = std::max(kRowGrain, (rows + kMostPieces - 1) / kMostPieces);
    pieces = (rows + piece - 1) / piece;
    sums = kMean ? 2 * n : n;
  }
};

template <bool kMean>
size_t GradScratch(const KernelCall& call) {
  const RowPieces<kMean> p(call);
  return static_cast<size_t>(p.sums * p.pieces) * sizeof(float);
}

constexpr int64_t kSumsAtOnce = 8;  // half a line of the cache, in registers
constexpr int64_t kSumGrain = 256;

// Of each of kSumsAtOnce floats of every piece, `apart` floats apart, in the pieces' order.
void SumPieces(const float* first, int64_t apart, int64_t pieces, double* totals) {
  typedef float TwoFloats __attribute__((vector_size(8)));
  typedef double TwoDoubles __attribute__((vector_size(16)));
  TwoDoubles sums[kSumsAtOnce / 2] = {};
  for (int64_t piece = 0; piece < pieces; ++piece) {
    for (int64_t k = 0; k < kSumsAtOnce / 2; ++k) {
      TwoFloats two;
      __builtin_memcpy(&two, first + piece * apart + 2 * k, sizeof(two));
      sums[k] += __builtin_convertvector(two, TwoDoubles);
    }
  }
  __builtin_memcpy(totals, sums, sizeof(sums));
}

template <bool kMean>
void RunGrad(const KernelCall& call) {
  const RowPieces<kMean> p(call);
  const float* x = call.inputs[0].as<float>();
  const float* scale = call.inputs[1].as<float>();
  const float* inverses = call.inputs[kMean ? 3 : 2].as<float>();
  const float* dz = call.inputs[kMean ? 4 : 3].as<float>();
  float* dx = call.outputs[0].as<float>();
  float* sums = static_cast<float*>(call.scratch);
  std::fill_n(sums, p.sums * p.pieces, 0.0f);
  const NnLoops& loops = NetworkLoops();
  ParallelFor(call.threads, p.pieces, 1, 4 * p.rows * p.n, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      float* dscale = sums + p.sums * piece;
      const int64_t row = piece * p.piece, at = row * p.n;
      const int64_t count = std::min(p.rows - row, p.piece);
      if constexpr (kMean) {
        const float* means = call.inputs[2].as<float>();
        loops.row_norm_grad(x + at, dz + at, scale, means + row, inverses + row, dx + at, dscale,
                            dscale + p.n, p.n, count);
      } else {
        loops.row_rms_grad(x + at, dz + at, scale, inverses + row, dx + at, dscale, p.n, count);
      }
    }
  });
  const auto gradient_at = [&](int64_t i) -> float& {
    const TensorRef& gradient = call.outputs[i < p.n ? 1 : 2];
    return gradient.as<float>()[i < p.n ? i : i - p.n];
  };
  ParallelFor(call.threads, p.sums, kSumGrain, p.sums * p.pieces, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + kSumsAtOnce <= end; i += kSumsAtOnce) {
      double totals[kSumsAtOnce];
      SumPieces(sums + i, p.sums, p.pieces, totals);
      for (int64_t k = 0; k < kSumsAtOnce; ++k) gradient_at(i + k) = static_cast<float>(totals[k]);
    }
    for (; i < end; ++i) {
      double sum = 0;
      for (int64_t piece = 0; piece < p.pieces; ++piece) sum += sums[p.sums * piece + i];
      gradient_at(i) = static_cast<float>(sum);
    }
  });
}

const NetworkKernels registrar({
    {OpCode::kLayerNorm, &RunLayerNorm},
    {OpCode::kLayerNormGrad, &RunGrad<true>, &GradScratch<true>},
    {OpCode::kRmsNorm, &RunRmsNorm},
    {OpCode::kRmsNormGrad, &RunGrad<false>, &GradScratch<false>},
});

}  // namespace
}  // namespace tidepool::cpu
