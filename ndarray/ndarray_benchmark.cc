// What an operation on small arrays costs beside its arithmetic: P5 and P6 of docs/performance.md.
#include <cstdlib>

#include "benchmark/benchmark.h"
#include "tidepool/memory/testing/quiet_statistics.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"

namespace tidepool {
namespace {

constexpr int kCallsPerCycle = 64;

// Counts a benchmark whose iteration is a cycle of kCallsPerCycle calls.
void CountCalls(benchmark::State& state) {
  state.counters["time_per_call"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kCallsPerCycle,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

NDArray Values(const Shape& shape, uint64_t stream) {
  return RandomUniform(shape, -1, 1, /*seed=*/1, stream);
}

// A benchmark whose iterations are cycles of a workspace that has learned what `call` needs.
template <typename Call>
void InLearnedWorkspace(benchmark::State& state, const Call& call) {
  SetThreadCount(1);
  Workspace workspace("benchmark", WorkspaceConfig::Training());
  auto cycle = [&] {
    WorkspaceScope scope(workspace);
    for (int i = 0; i < kCallsPerCycle; ++i) call();
  };
  for (int i = 0; i < 3; ++i) cycle();
  for (auto _ : state) cycle();
  CountCalls(state);
}

void AddOneElementOnTheHeap(benchmark::State& state) {
  const NDArray x = Values({1}, 0), y = Values({1}, 1);
  for (auto _ : state) benchmark::DoNotOptimize(Add(x, y).raw_data());
}
// The yardstick: how quiet the machine is.
void MallocAndFree(benchmark::State& state) {
  for (auto _ : state) {
    void* const data = std::malloc(64);
    benchmark::DoNotOptimize(data);
    std::free(data);
  }
}
BENCHMARK(MallocAndFree)->Apply(QuietStatistics);

BENCHMARK(AddOneElementOnTheHeap)->Apply(QuietStatistics);

void AddOneElementInAWorkspace(benchmark::State& state) {
  const NDArray x = Values({1}, 0), y = Values({1}, 1);
  InLearnedWorkspace(state, [&] { benchmark::DoNotOptimize(Add(x, y).raw_data()); });
}
BENCHMARK(AddOneElementInAWorkspace)->Apply(QuietStatistics);

void AddIntoOneElement(benchmark::State& state) {
  const NDArray x = Values({1}, 0), y = Values({1}, 1);
  NDArray z = Zeros({1});
  for (auto _ : state) {
    AddInto(x, y, z);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(AddIntoOneElement)->Apply(QuietStatistics);

void EmptyOnTheHeap(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Empty({state.range(0)}).raw_data());
}
BENCHMARK(EmptyOnTheHeap)->Apply(QuietStatistics)->Arg(1)->Arg(1024)->Arg(1 << 18);

void EmptyInAWorkspace(benchmark::State& state) {
  const int64_t count = state.range(0);
  InLearnedWorkspace(state, [&] { benchmark::DoNotOptimize(Empty({count}).raw_data()); });
}
BENCHMARK(EmptyInAWorkspace)->Apply(QuietStatistics)->Arg(1)->Arg(1024)->Arg(1 << 18);

void CopyOfAHandle(benchmark::State& state) {
  const NDArray x = Values({8, 8}, 0);
  for (auto _ : state) {
    NDArray copy = x;
    benchmark::DoNotOptimize(copy.raw_data());
  }
}
BENCHMARK(CopyOfAHandle)->Apply(QuietStatistics);

void ViewBySlice(benchmark::State& state) {
  const NDArray x = Values({8, 8}, 0);
  for (auto _ : state) benchmark::DoNotOptimize(x.Slice(0, 2, 6).raw_data());
}
BENCHMARK(ViewBySlice)->Apply(QuietStatistics);

void ViewByReshape(benchmark::State& state) {
  const NDArray x = Values({8, 8}, 0);
  const Shape shape{64};
  for (auto _ : state) benchmark::DoNotOptimize(x.Reshape(shape).raw_data());
}
BENCHMARK(ViewByReshape)->Apply(QuietStatistics);

void ViewByTranspose(benchmark::State& state) {
  const NDArray x = Values({8, 8}, 0);
  for (auto _ : state) benchmark::DoNotOptimize(x.Transpose().raw_data());
}
BENCHMARK(ViewByTranspose)->Apply(QuietStatistics);

// Of an array on the heap, and of one in the cycle of a workspace.
void OperandCheck(benchmark::State& state) {
  Workspace workspace("benchmark", WorkspaceConfig::Training());
  WorkspaceScope scope(workspace);
  const NDArray x = Empty({8}, DType::kFloat32, state.range(0) ? Place::Current() : Place::Heap());
  const NDArray* operand = &x;
  for (auto _ : state) {
    benchmark::DoNotOptimize(operand);  // or the compiler would check once
    operand->CheckAlive("Check", "x");
    benchmark::ClobberMemory();
  }
}
BENCHMARK(OperandCheck)->Apply(QuietStatistics)->ArgName("in_workspace")->Arg(0)->Arg(1);

void MatMulOnTheHeap(benchmark::State& state) {
  SetThreadCount(1);
  const int64_t n = state.range(0);
  const NDArray x = Values({n, n}, 0), y = Values({n, n}, 1);
  for (auto _ : state) benchmark::DoNotOptimize(MatMul(x, y).raw_data());
}
BENCHMARK(MatMulOnTheHeap)->Apply(QuietStatistics)->Arg(8)->Arg(32);

void MatMulInAWorkspace(benchmark::State& state) {
  const int64_t n = state.range(0);
  const NDArray x = Values({n, n}, 0), y = Values({n, n}, 1);
  InLearnedWorkspace(state, [&] { benchmark::DoNotOptimize(MatMul(x, y).raw_data()); });
}
BENCHMARK(MatMulInAWorkspace)->Apply(QuietStatistics)->Arg(8)->Arg(32);

void MatMulIntoSmall(benchmark::State& state) {
  SetThreadCount(1);
  const int64_t n = state.range(0);
  const NDArray x = Values({n, n}, 0), y = Values({n, n}, 1);
  NDArray z = Zeros({n, n});
  for (auto _ : state) {
    MatMulInto(x, y, z);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(MatMulIntoSmall)->Apply(QuietStatistics)->Arg(8)->Arg(32);

}  // namespace
}  // namespace tidepool
