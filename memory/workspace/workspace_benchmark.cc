// What a cycle and a request cost, beside malloc (P1 of docs/performance.md).
#include <cstdlib>

#include "benchmark/benchmark.h"
#include "tidepool/memory/testing/quiet_statistics.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

void EnterAndLeave(benchmark::State& state) {
  Workspace workspace("w", WorkspaceConfig::Training());
  for (int i = 0; i < 2; ++i) {
    WorkspaceScope scope(workspace);
    BufferHandle(AllocateHere(64));
  }
  for (auto _ : state) {
    WorkspaceScope scope(workspace);
  }
}
BENCHMARK(EnterAndLeave)->Apply(QuietStatistics);

// One allocate and release per iteration, 64 requests a cycle, statistics and ledger on.
void PlannedRequest(benchmark::State& state) {
  const size_t bytes = state.range(0);
  Workspace workspace("w", WorkspaceConfig::Training());
  constexpr int kRequests = 64;
  for (auto _ : state) {
    WorkspaceScope scope(workspace);
    for (int i = 0; i < kRequests; ++i) {
      BufferHandle buffer(AllocateHere(bytes));
      benchmark::DoNotOptimize(buffer->data);
    }
  }
  state.counters["ns_per_request"] =
      benchmark::Counter(state.iterations() * kRequests * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(PlannedRequest)->Apply(QuietStatistics)->RangeMultiplier(64)->Range(64, 64 << 20);

// The same outside of workspaces: a block of its own, a record, the ledger and the budgets.
void HeapRequest(benchmark::State& state) {
  const size_t bytes = state.range(0);
  for (auto _ : state) {
    BufferHandle buffer(AllocateHere(bytes));
    benchmark::DoNotOptimize(buffer->data);
  }
}
BENCHMARK(HeapRequest)->Apply(QuietStatistics)->Arg(64)->Arg(4096);

void Malloc(benchmark::State& state) {
  const size_t bytes = state.range(0);
  for (auto _ : state) {
    void* const data = std::malloc(bytes);
    benchmark::DoNotOptimize(data);
    std::free(data);
  }
}
BENCHMARK(Malloc)->Apply(QuietStatistics)->RangeMultiplier(64)->Range(64, 64 << 20);

}  // namespace
}  // namespace tidepool
