// Batch normalisation of f64: the mean first, then the squares around it (column_blocks.h).
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/float64/column_blocks.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu::float64 {
namespace {

void RunBatchNorm(const KernelCall& call) {
  const Sum epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const Rows g(call.inputs[0]);
  const double* x = In(call, 0);
  double* z = Out(call, 0);
  const auto rows = static_cast<Sum>(g.rows);
  ForEachBlock(call, g, [&](const Block& block) {
    Sum mean[kLanes], variance[kLanes];
    double center[kLanes], rest[kLanes], factor[kLanes], shift[kLanes];
    block.AddUp(mean, [x](int64_t i, int64_t) { return x[i]; });
    for (int64_t c = 0; c < block.width; ++c) mean[c] /= rows;
    block.ToLanes(mean, center);
    // What rounding the mean leaves out counts where elements are much nearer to it than to 0.
    for (int64_t lane = 0; lane < block.lanes; ++lane) {
      rest[lane] = static_cast<double>(mean[lane % block.width] - center[lane]);
    }
    block.AddUp(variance, [x, &center, &rest](int64_t i, int64_t lane) {
      const double d = (x[i] - center[lane]) - rest[lane];
      return d * d;
    });
    for (int64_t c = 0; c < block.width; ++c) {
      const Sum inverse = 1 / std::sqrt(variance[c] / rows + epsilon);
      Out(call, 1)[block.first + c] = static_cast<double>(mean[c]);
      Out(call, 2)[block.first + c] = static_cast<double>(inverse);
      variance[c] = inverse * In(call, 1)[block.first + c];
    }
    block.ToLanes(variance, factor);
    block.ToLanes(In(call, 2) + block.first, shift);
    block.ForEach([&](int64_t at, int64_t n) {
      for (int64_t lane = 0; lane < n; ++lane) {
        z[at + lane] = ((x[at + lane] - center[lane]) - rest[lane]) * factor[lane] + shift[lane];
      }
    });
  });
}

void RunBatchNormInference(const KernelCall& call) {
  const Sum epsilon = call.attrs<NormalizationAttributes>().epsilon;
  const Rows g(call.inputs[0]);
  const double* x = In(call, 0);
  double* z = Out(call, 0);
  ForEachBlock(call, g, [&](const Block& block) {
    Sum factors[kLanes];
    for (int64_t c = 0; c < block.width; ++c) {
      factors[c] = In(call, 1)[block.first + c] / std::sqrt(In(call, 4)[block.first + c] + epsilon);
    }
    double center[kLanes], factor[kLanes], shift[kLanes];
    block.ToLanes(factors, factor);
    block.ToLanes(In(call, 2) + block.first, shift);
    block.ToLanes(In(call, 3) + block.first, center);
    block.ForEach([&](int64_t at, int64_t n) {
      for (int64_t lane = 0; lane < n; ++lane) {
        z[at + lane] = (x[at + lane] - center[lane]) * factor[lane] + shift[lane];
      }
    });
  });
}

void RunBatchNormGrad(const KernelCall& call) {
  const Rows g(call.inputs[0]);
  const double *x = In(call, 0), *dz = In(call, 4);
  double* dx = Out(call, 0);
  const auto rows = static_cast<Sum>(g.rows);
  ForEachBlock(call, g, [&](const Block& block) {
    double center[kLanes], inverse[kLanes], factor[kLanes], offset[kLanes], slope[kLanes];
    block.ToLanes(In(call, 2) + block.first, center);
    block.ToLanes(In(call, 3) + block.first, inverse);
    Sum dscale[kLanes], dshift[kLanes], factors[kLanes];
    block.AddUp(dshift, [dz](int64_t i, int64_t) { return dz[i]; });
    block.AddUp(dscale, [x, dz, &center](int64_t i, int64_t lane) {
      return dz[i] * (x[i] - center[lane]);
    });
    for (int64_t c = 0; c < block.width; ++c) {
      dscale[c] *= inverse[c];
      Out(call, 1)[block.first + c] = static_cast<double>(dscale[c]);
      Out(call, 2)[block.first + c] = static_cast<double>(dshift[c]);
      factors[c] = static_cast<Sum>(In(call, 1)[block.first + c]) * inverse[c];
      dshift[c] /= rows;
      dscale[c] *= inverse[c] / rows;
    }
    block.ToLanes(factors, factor);
    block.ToLanes(dshift, offset);
    block.ToLanes(dscale, slope);
    block.ForEach([&](int64_t at, int64_t n) {
      for (int64_t lane = 0; lane < n; ++lane) {
        dx[at + lane] = factor[lane] * (dz[at + lane] - offset[lane] -
                                        (x[at + lane] - center[lane]) * slope[lane]);
      }
    });
  });
}

constexpr Kernel Cpu(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat64, "cpu", 10, run};
}

const KernelRegistrar registrar({
    Cpu(OpCode::kBatchNorm, &RunBatchNorm),
    Cpu(OpCode::kBatchNormInference, &RunBatchNormInference),
    Cpu(OpCode::kBatchNormGrad, &RunBatchNormGrad),
});

}  // namespace
}  // namespace tidepool::cpu::float64
