// Reductions, indexing, ordering and random numbers in bytes per second of what they read (random
// numbers: write), beside a memcpy of the same memory.
//
//   bazel run //backends/cpu:reduction_benchmark -- --benchmark_filter=Sum
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/sorting.h"

namespace tidepool {
namespace {

constexpr int64_t kMega = 1 << 20;

int64_t Bytes(const NDArray& x) {
  return x.NumElements() * static_cast<int64_t>(DTypeBytes(x.dtype()));
}

void Memcpy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<char> from(bytes, 1), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Memcpy)->Arg(64 * kMega)->Arg(kMega / 4)->Unit(benchmark::kMicrosecond);

// `call` in the cycles of a workspace, on one thread unless it says otherwise.
void Measure(benchmark::State& state, int threads, int64_t bytes,
             const std::function<void()>& call) {
  SetThreadCount(threads);
  Workspace workspace("benchmark", WorkspaceConfig::Training());
  auto cycle = [&] {
    WorkspaceScope scope(workspace);
    call();
  };
  // Until the workspace has learned and its pages are there: touching 64 MiB for the first time takes
  // fifteen times as long as a cumulative sum of it, and would end the measurement after one cycle.
  for (int i = 0; i < 3; ++i) cycle();
  for (auto _ : state) cycle();
  state.SetBytesProcessed(state.iterations() * bytes);
}

struct Case {
  std::string name;
  Shape shape;
  DType dtype;
  std::function<void(const NDArray&)> run;
  int threads = 1;
};

std::vector<Case> Cases() {
  const DType f32 = DType::kFloat32, f64 = DType::kFloat64, f16 = DType::kFloat16;
  const DType i64 = DType::kInt64, u8 = DType::kUInt8, i32 = DType::kInt32;
  const Shape large = {4096, 4096}, small = {256, 256}, rows8 = {1 << 21, 8}, rows3 = {5592405, 3};
  const Shape images = {64, 16, 16, 1024};
  using X = const NDArray&;
  return {
      {"Sum/all", large, f32, [](X x) { Sum(x); }},
      {"Sum/all/2threads", large, f32, [](X x) { Sum(x); }, 2},
      {"Sum/last", large, f32, [](X x) { Sum(x, 1); }},
      {"Sum/first", large, f32, [](X x) { Sum(x, 0); }},
      {"Sum/first/2threads", large, f32, [](X x) { Sum(x, 0); }, 2},
      {"Sum/channels", images, f32,
       [](X x) {
         Sum(x, {0, 1, 2});
       }},
      {"Sum/outer_and_last", images, f32,
       [](X x) {
         Sum(x, {0, 3});
       }},
      {"Sum/middle", images, f32,
       [](X x) {
         Sum(x, {1, 2});
       }},
      {"Sum/transposed", large, f32, [](X x) { Sum(x.Transpose(), 1); }},
      {"Sum/last_of_8", rows8, f32, [](X x) { Sum(x, 1); }},
      {"Sum/first_of_8", rows8, f32, [](X x) { Sum(x, 0); }},
      {"Sum/first_of_3", rows3, f32, [](X x) { Sum(x, 0); }},
      {"Sum/small/last", small, f32, [](X x) { Sum(x, 1); }},
      {"Sum/small/first", small, f32, [](X x) { Sum(x, 0); }},
      {"Sum/f64", large, f64, [](X x) { Sum(x); }},
      {"Sum/f16", large, f16, [](X x) { Sum(x); }},
      {"Sum/i64", large, i64, [](X x) { Sum(x); }},
      {"Sum/i32", large, i32, [](X x) { Sum(x); }},
      {"Sum/u8", large, u8, [](X x) { Sum(x); }},
      {"Sum/u8/first", large, u8, [](X x) { Sum(x, 0); }},
      {"Prod/all", large, f32, [](X x) { Prod(x); }},
      {"Max/all", large, f32, [](X x) { Max(x); }},
      {"Max/first", large, f32, [](X x) { Max(x, 0); }},
      {"Max/u8", large, u8, [](X x) { Max(x); }},
      {"ArgMax/last", large, f32, [](X x) { ArgMax(x, 1); }},
      {"ArgMax/first", large, f32, [](X x) { ArgMax(x, 0); }},
      {"All", large, u8, [](X x) { All(x); }},
      {"Norm2/all", large, f32, [](X x) { Norm2(x); }},
      {"Variance/last", large, f32, [](X x) { Variance(x, 1); }},
      {"Variance/first", large, f32, [](X x) { Variance(x, 0); }},
      {"LogSumExp/last", large, f32, [](X x) { LogSumExp(x, 1); }},
      {"LogSumExp/first", large, f32, [](X x) { LogSumExp(x, 0); }},
      {"CumSum/last", large, f32, [](X x) { CumSum(x, 1); }},
      {"CumSum/small/last", small, f32, [](X x) { CumSum(x, 1); }},
      {"CumSum/first", large, f32, [](X x) { CumSum(x, 0); }},
      {"Sort/rows_of_1024", {4096, 1024}, f32, [](X x) { Sort(x); }},
      {"Sort/million", {kMega}, f32, [](X x) { Sort(x); }},
      {"ArgSort/million", {kMega}, f32, [](X x) { ArgSort(x); }},
      {"TopK/5_of_1000", {4096, 1000}, f32, [](X x) { TopK(x, 5); }},
      {"Flip", large, f32, [](X x) { Flip(x); }},
      {"LowerTriangle", large, f32, [](X x) { LowerTriangle(x); }},
      {"Dropout", large, f32, [](X x) { Dropout(x, 0.5, 1, 1); }},
      {"RandomUniform", large, f32, [](X x) { RandomUniform(x.shape(), 0, 1, 1); }},
      {"RandomNormal", small, f32, [](X x) { RandomNormal(x.shape(), 0, 1, 1); }},
      {"RandomBernoulli", large, u8, [](X x) { RandomBernoulli(x.shape(), 0.5, 1); }},
      {"RandomPermutation", {kMega}, i64, [](X x) { RandomPermutation(x.dim(0), 1); }},
  };
}

void Rows(benchmark::State& state, bool scatter) {
  const int64_t width = state.range(0), count = 4 * kMega / width;
  const NDArray table = RandomUniform({65536, width}, 0, 1, 1);
  const NDArray indices = RandomIntegers({count}, 0, 65536, 2);
  NDArray z = Zeros({count, width}), sums = Zeros({65536, width});
  Measure(state, 1, Bytes(z), [&] {
    if (scatter) return ScatterAddInto(z, indices, 0, sums);
    GatherInto(table, indices, 0, z);
  });
}
BENCHMARK_CAPTURE(Rows, gather, false)->Arg(1)->Arg(16)->Arg(256)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Rows, scatter_add, true)
    ->Arg(1)
    ->Arg(16)
    ->Arg(256)
    ->Unit(benchmark::kMicrosecond);

const bool registered = [] {
  for (const Case& c : Cases()) {
    benchmark::RegisterBenchmark(c.name.c_str(), [c](benchmark::State& state) {
      // 1 to 2: products stay finite for a while, and no branch is learnt.
      const NDArray x = Cast(RandomUniform(c.shape, 1, 2, 3), c.dtype);
      Measure(state, c.threads, Bytes(x), [&] { c.run(x); });
    })->Unit(benchmark::kMicrosecond);
  }
  return true;
}();

}  // namespace
}  // namespace tidepool
