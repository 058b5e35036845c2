// Workspaces beside general allocators on the same requests (P1, P2, P3 of docs/performance.md).
//
//   bazel run //memory/workspace:allocator_benchmark
//
// PairOf/ALLOCATOR/BYTES: allocate and release one block. CycleOf/ALLOCATOR/TRACE: a training step's
// requests in order (memory/planning/testdata/traces), one byte of each page written as its owner would; counters:
// ns_per_request (one allocate and one release, writes included), faults_per_cycle, and for the
// workspace planned peak / live lower bound.
//
// Allocators: allocators.h.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/planning/problem_file.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/allocators.h"
#include "tidepool/memory/workspace/streams.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

std::vector<Step> StepsOf(const std::vector<LifetimeBuffer>& requests) {
  std::multimap<int64_t, uint32_t> releases;
  std::vector<Step> steps;
  for (uint32_t i = 0; i < requests.size(); ++i) {
    while (!releases.empty() && releases.begin()->first <= i) {
      steps.push_back({releases.begin()->second, 0});
      releases.erase(releases.begin());
    }
    steps.push_back({i, static_cast<size_t>(requests[i].size)});
    releases.emplace(requests[i].upper, i);
  }
  for (const auto& [upper, number] : releases) steps.push_back({number, 0});
  return steps;
}

void SetRate(benchmark::State& state, size_t requests, int64_t faults) {
  state.counters["ns_per_request"] =
      benchmark::Counter(state.iterations() * requests * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["faults_per_cycle"] = static_cast<double>(faults) / state.iterations();
}

void CycleOf(benchmark::State& state, const Allocator& allocator, const std::vector<Step>& steps,
             size_t requests) {
  std::vector<void*> blocks(requests);
  auto cycle = [&] { PlayOn(allocator, steps, blocks); };
  for (int i = 0; i < 3; ++i) cycle();
  const int64_t faults = PageFaults();
  for (auto _ : state) cycle();
  SetRate(state, requests, PageFaults() - faults);
}

void CycleOfWorkspace(benchmark::State& state, const std::vector<Step>& steps, size_t requests) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.plan_search_seconds = 0;
  Workspace workspace("w", config);
  std::vector<BufferHandle> blocks(requests);
  auto cycle = [&] {
    WorkspaceScope scope(workspace);
    PlayHere(steps, blocks);
  };
  for (int i = 0; i < 3; ++i) cycle();
  const int64_t faults = PageFaults();
  for (auto _ : state) cycle();
  SetRate(state, requests, PageFaults() - faults);
  const WorkspaceStats stats = workspace.stats();
  state.counters["peak_ratio"] =
      static_cast<double>(stats.planned_peak_bytes) / stats.live_lower_bound_bytes;
  state.counters["misses"] = static_cast<double>(stats.misses);
}

void PairOf(benchmark::State& state, const Allocator& allocator, size_t bytes) {
  constexpr int kPairs = 64;
  for (auto _ : state) {
    for (int i = 0; i < kPairs; ++i) {
      void* const data = allocator.allocate(bytes);
      benchmark::DoNotOptimize(data);
      allocator.release(data);
    }
  }
  SetRate(state, kPairs, 0);
}

void PairOfWorkspace(benchmark::State& state, size_t bytes) {
  constexpr int kPairs = 64;
  Workspace workspace("w", WorkspaceConfig::Training());
  auto cycle = [&] {
    WorkspaceScope scope(workspace);
    for (int i = 0; i < kPairs; ++i) {
      BufferHandle buffer(AllocateHere(bytes));
      benchmark::DoNotOptimize(buffer->data);
    }
  };
  cycle();
  for (auto _ : state) cycle();
  SetRate(state, kPairs, 0);
}

std::vector<LifetimeBuffer> Recorded(const std::string& name) {
  return ReadProblemFile("memory/planning/testdata/traces/" + name + ".csv").buffers;
}

const int registered = [] {
  const std::vector<Allocator> allocators = FindAllocators();
  for (size_t bytes :
       {size_t{64}, size_t{4096}, size_t{262144}, size_t{16} << 20, size_t{64} << 20}) {
    const std::string suffix = "/" + std::to_string(bytes);
    benchmark::RegisterBenchmark(
        ("PairOf/workspace" + suffix).c_str(),
        [bytes](benchmark::State& state) { PairOfWorkspace(state, bytes); });
    for (const Allocator& allocator : allocators) {
      benchmark::RegisterBenchmark(
          ("PairOf/" + allocator.name + suffix).c_str(),
          [allocator, bytes](benchmark::State& state) { PairOf(state, allocator, bytes); });
    }
  }
  const std::pair<const char*, std::vector<LifetimeBuffer>> traces[] = {
      {"mlp", Recorded("mlp")},
      {"lenet", Recorded("lenet")},
      {"residual_net", Recorded("residual_net")},
      {"lstm", Recorded("lstm")},
  };
  for (const auto& [name, requests] : traces) {
    const std::vector<Step> steps = StepsOf(requests);
    const size_t count = requests.size();
    benchmark::RegisterBenchmark(
        (std::string("CycleOf/workspace/") + name).c_str(),
        [steps, count](benchmark::State& state) { CycleOfWorkspace(state, steps, count); });
    for (const Allocator& allocator : allocators) {
      benchmark::RegisterBenchmark(("CycleOf/" + allocator.name + "/" + name).c_str(),
                                   [allocator, steps, count](benchmark::State& state) {
                                     CycleOf(state, allocator, steps, count);
                                   });
    }
  }
  return 0;
}();

}  // namespace
}  // namespace tidepool
