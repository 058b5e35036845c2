// What owning costs: per array, per node, per bulk close. See docs/performance.md.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/pins.h"
#include "tidepool/memory/testing/quiet_statistics.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

// A buffer that exists joins the node and leaves it again: what a manager adds to an array's life.
void BM_AttachAndRelease(benchmark::State& state) {
  Ownership root = Ownership::NewRoot("benchmark");
  Ownership node = root.NewChild("node");
  BufferHandle x(NewHeapBuffer(64));
  const uint64_t ref = node.ref().bits();
  for (auto _ : state) {
    benchmark::DoNotOptimize(LinkNew(x.get(), ref));
    internal::BeforeRelease(x.get());
  }
}
BENCHMARK(BM_AttachAndRelease)->Apply(QuietStatistics);

// In a workspace's cycle: allocate, attach, release.
void BM_WorkspaceArray(benchmark::State& state) {
  Workspace workspace("benchmark", WorkspaceConfig::Training());
  Ownership root = Ownership::NewRoot("benchmark");
  const bool owned = state.range(0) != 0;
  constexpr int kPerCycle = 1000;
  for (auto _ : state) {
    Ownership cycle = root.NewCycle("cycle", workspace);
    const uint64_t ref = cycle.ref().bits();
    for (int i = 0; i < kPerCycle; ++i) {
      BufferHandle x(AllocateHere(256));
      if (owned) LinkNew(x.get(), ref);
    }
  }
  state.SetItemsProcessed(state.iterations() * kPerCycle);
}
BENCHMARK(BM_WorkspaceArray)->Apply(QuietStatistics)->ArgName("owned")->Arg(0)->Arg(1);

// What a call of two operands pays for pins: both on the heap, or in the workspace that is open here.
void BM_PinTwoOperands(benchmark::State& state) {
  Workspace workspace("benchmark", WorkspaceConfig::Training());
  WorkspaceScope scope(workspace);
  BufferHandle operands[2];
  for (BufferHandle& x : operands) {
    x = BufferHandle(state.range(0) != 0 ? AllocateHere(64) : NewHeapBuffer(64));
  }
  for (auto _ : state) {
    PinScope pins;
    for (const BufferHandle& x : operands) pins.Pin(x.get());
    pins.Publish();
    benchmark::DoNotOptimize(operands[0]->IsAlive());
  }
}
BENCHMARK(BM_PinTwoOperands)->Apply(QuietStatistics)->ArgName("workspace")->Arg(0)->Arg(1);

void BM_OpenAndClose(benchmark::State& state) {
  Ownership root = Ownership::NewRoot("benchmark");
  Ownership parent = root.NewChild("model");
  for (auto _ : state) {
    Ownership child = parent.NewChild("predictor ctx");
    benchmark::DoNotOptimize(child.node());
  }
}
BENCHMARK(BM_OpenAndClose)->Apply(QuietStatistics);

// So many arrays of 64 bytes whose handles the user still has. The first cycle of the arena, in which
// it learns its size, is not measured.
void BM_BulkClose(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(1));
  const bool arena = state.range(0) != 0;
  WorkspaceConfig config;  // learns totals: a plan of a million lifetimes is another benchmark
  config.policy_learning = LearningPolicy::kFirstLoop;
  Workspace workspace("bulk", config);
  Ownership root = Ownership::NewRoot("benchmark");
  std::vector<BufferHandle> handles(count);
  if (arena) {
    WorkspaceScope scope(workspace);
    for (BufferHandle& handle : handles) handle = BufferHandle(AllocateHere(64));
    for (BufferHandle& handle : handles) handle.Reset();
  }
  for (auto _ : state) {
    state.PauseTiming();
    Ownership node = arena ? root.NewCycle("bulk", workspace) : root.NewChild("bulk");
    const uint64_t ref = node.ref().bits();
    for (BufferHandle& handle : handles) {
      handle = BufferHandle(AllocateHere(64));
      LinkNew(handle.get(), ref);
    }
    state.ResumeTiming();
    node.Close();
    state.PauseTiming();
    for (BufferHandle& handle : handles) handle.Reset();
    state.ResumeTiming();
  }
  state.counters["ns_per_array"] = benchmark::Counter(
      static_cast<double>(count) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_BulkClose)
    ->Apply(QuietStatistics)
    ->ArgNames({"arena", "arrays"})
    ->ArgsProduct({{0, 1}, {1000, 1000000}})
    ->Iterations(4)
    ->Unit(benchmark::kMicrosecond);

// What glibc alone takes to free such blocks in that order, records between them.
void BM_PlainFree(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  std::vector<void*> records(count), blocks(count);
  for (auto _ : state) {
    state.PauseTiming();
    for (size_t i = 0; i < count; ++i) {
      records[i] = std::malloc(sizeof(Buffer));
      blocks[i] = std::aligned_alloc(64, 128);
    }
    state.ResumeTiming();
    for (size_t i = count; i-- > 0;) std::free(blocks[i]);
    state.PauseTiming();
    for (void* record : records) std::free(record);
    state.ResumeTiming();
  }
  state.counters["ns_per_array"] = benchmark::Counter(
      static_cast<double>(count) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_PlainFree)
    ->Apply(QuietStatistics)
    ->Arg(1000)
    ->Arg(1000000)
    ->Iterations(4)
    ->Unit(benchmark::kMicrosecond);

void BM_LendAndReturn(benchmark::State& state) {
  Ownership root = Ownership::NewRoot("benchmark");
  Ownership owner = root.NewChild("owner"), borrower = root.NewChild("borrower");
  BufferHandle x(NewHeapBuffer(64));
  owner.Attach(x);
  for (auto _ : state) {
    borrower.Lend(x);
    borrower.Return(x);
  }
}
BENCHMARK(BM_LendAndReturn)->Apply(QuietStatistics);

}  // namespace
}  // namespace tidepool
