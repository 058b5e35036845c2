// Sums over the first or last axis, the largest element's index.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tidepool/backends/cpu/thread_pool.h"
#include "tidepool/backends/cpu/vector_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

// Rows that one pass of a sum over the first axis adds side by side: a long run even when a row is
// short.
constexpr int64_t kRowsAtOnce = 8;
// Passes whose float sums are added up before they join the total, to bound rounding.
constexpr int64_t kPassesPerBlock = 64;

size_t SumScratch(const KernelCall& call) {
  if (!call.attrs<SumAttributes>().first_axis) return 0;
  return static_cast<size_t>(2 * kRowsAtOnce * call.inputs[0].dims[1]) * sizeof(float);
}

void SumFirstAxis(const float* x, int64_t m, int64_t n, float* z, float* block, float* total) {
  const VectorLoops& loops = Loops();
  const int64_t wide = kRowsAtOnce * n;
  std::memset(total, 0, wide * sizeof(float));
  int64_t row = 0;
  while (row + kRowsAtOnce <= m) {
    const int64_t passes = std::min(kPassesPerBlock, (m - row) / kRowsAtOnce);
    std::memcpy(block, x + row * n, wide * sizeof(float));
    for (int64_t pass = 1; pass < passes; ++pass) {
      loops.accumulate(x + (row + pass * kRowsAtOnce) * n, block, wide);
    }
    loops.accumulate(block, total, wide);
    row += passes * kRowsAtOnce;
  }
  for (; row < m; ++row) loops.accumulate(x + row * n, total, n);
  for (int64_t half = kRowsAtOnce / 2; half >= 1; half /= 2) {
    loops.accumulate(total + half * n, total, half * n);
  }
  std::memcpy(z, total, n * sizeof(float));
}

void RunSum(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const int64_t m = x.dims[0], n = x.dims[1];
  float* z = call.outputs[0].as<float>();
  if (call.attrs<SumAttributes>().first_axis) {
    float* scratch = static_cast<float*>(call.scratch);
    SumFirstAxis(x.as<float>(), m, n, z, scratch, scratch + kRowsAtOnce * n);
    return;
  }
  for (int64_t row = 0; row < m; ++row) z[row] = Loops().sum(x.as<float>() + row * n, n);
}

void RunArgMax(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const int64_t m = x.dims[0], n = x.dims[1];
  for (int64_t row = 0; row < m; ++row) {
    const float* values = x.as<float>() + row * n;
    int64_t best = 0;
    for (int64_t i = 1; i < n && values[best] == values[best]; ++i) {
      if (!(values[i] <= values[best])) best = i;  // larger, or NaN
    }
    call.outputs[0].as<int64_t>()[row] = best;
  }
}

constexpr DeviceType kHost = DeviceType::kHost;
constexpr DType kF32 = DType::kFloat32;
constexpr int kPriority = 10;

const KernelRegistrar registrar({
    {OpCode::kSum, kHost, kF32, "cpu", kPriority, &RunSum, &SumScratch},
    {OpCode::kArgMax, kHost, kF32, "cpu", kPriority, &RunArgMax},
});

}  // namespace
}  // namespace tidepool::cpu
