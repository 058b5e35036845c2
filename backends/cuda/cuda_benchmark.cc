// Bandwidth of elementwise operators, products beside raw cuBLAS, and copies both ways. Times are of the
// device, by events around many calls; skipped without one.
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/backends/cuda/matmul/cublas.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using cuda::Check;
using cuda::CudaDevice;

constexpr Device kCuda{DeviceType::kCuda, 0};
constexpr int kCallsPerIteration = 20;

// Runs `call` in batches; the time reported is the device's for one call.
template <typename Call>
void Measure(benchmark::State& state, Call call) {
  CudaDevice& device = *CudaDevice::Find(0);
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = 0; i < 3; ++i) call();
  for (auto _ : state) {
    Check(cudaEventRecord(begin, device.compute()), "cudaEventRecord");
    for (int i = 0; i < kCallsPerIteration; ++i) call();
    Check(cudaEventRecord(end, device.compute()), "cudaEventRecord");
    Check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    state.SetIterationTime(milliseconds / 1000 / kCallsPerIteration);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

bool Missing(benchmark::State& state) {
  if (CudaDevice::Find(0) != nullptr) return false;
  state.SkipWithError(("no CUDA device: " + CudaDevice::WhyAbsent()).c_str());
  return true;
}

NDArray Random(const Shape& shape) { return RandomUniform(shape, -1, 1, 20240611, 0, Place::On(kCuda)); }

void SetBytes(benchmark::State& state, int64_t bytes) {
  state.counters["bytes_per_second"] =
      benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kIsIterationInvariantRate);
}

void BM_DeviceCopy(benchmark::State& state) {  // the ceiling of what follows
  if (Missing(state)) return;
  const NDArray x = Random({state.range(0)});
  NDArray z = Random({state.range(0)});
  Measure(state, [&] {
    Check(cudaMemcpyAsync(z.raw_data(), x.raw_data(), state.range(0) * 4, cudaMemcpyDeviceToDevice,
                          CudaDevice::Find(0)->compute()),
          "cudaMemcpyAsync");
  });
  SetBytes(state, 8 * state.range(0));
}
BENCHMARK(BM_DeviceCopy)->Arg(1 << 20)->Arg(1 << 26)->UseManualTime();

void BM_Add(benchmark::State& state) {
  if (Missing(state)) return;
  const NDArray x = Random({state.range(0)}), y = Random({state.range(0)});
  NDArray z = Random({state.range(0)});
  Measure(state, [&] { AddInto(x, y, z); });
  SetBytes(state, 12 * state.range(0));
}
BENCHMARK(BM_Add)->Arg(1 << 20)->Arg(1 << 26)->UseManualTime();

void BM_AddRow(benchmark::State& state) {  // broadcast, by strides
  if (Missing(state)) return;
  const NDArray x = Random({state.range(0), 1024}), y = Random({1024});
  NDArray z = Random({state.range(0), 1024});
  Measure(state, [&] { AddInto(x, y, z); });
  SetBytes(state, 8 * 1024 * state.range(0));
}
BENCHMARK(BM_AddRow)->Arg(1 << 16)->UseManualTime();

void BM_MatMul(benchmark::State& state) {
  if (Missing(state)) return;
  const int64_t n = state.range(0);
  const NDArray x = Random({n, n}), y = Random({n, n});
  NDArray z = Random({n, n});
  Measure(state, [&] { MatMulInto(x, y, z); });
  state.counters["flops"] = benchmark::Counter(2.0 * static_cast<double>(n * n * n),
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_MatMul)->Arg(256)->Arg(1024)->Arg(4096)->UseManualTime();

void BM_RawCublas(benchmark::State& state) {
  if (Missing(state)) return;
  const int64_t n = state.range(0);
  const int side = static_cast<int>(n);
  const NDArray x = Random({n, n}), y = Random({n, n});
  NDArray z = Random({n, n});
  const float one = 1, zero = 0;
  Measure(state, [&] {
    cuda::Cublas::Of(*CudaDevice::Find(0)).With([&](cublasHandle_t handle) {
      cuda::CheckCublas(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, side, side, side, &one,
                                    reinterpret_cast<const float*>(y.raw_data()), side,
                                    reinterpret_cast<const float*>(x.raw_data()), side, &zero,
                                    reinterpret_cast<float*>(z.raw_data()), side),
                        "cublasSgemm");
    });
  });
  state.counters["flops"] = benchmark::Counter(2.0 * static_cast<double>(n * n * n),
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_RawCublas)->Arg(256)->Arg(1024)->Arg(4096)->UseManualTime();

}  // namespace
}  // namespace tidepool

BENCHMARK_MAIN();
