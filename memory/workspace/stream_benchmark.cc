// Streams of cycles that are not alike, beside general allocators (P20 of docs/performance.md).
//
//   bazel run //memory/workspace:stream_benchmark
//
// StreamOf/ALLOCATOR/STREAM: documents of a parser, sequences of 200 lengths, batches of 1 to 32, each drawn
// anew outside of the time, one byte of each page written. Counters: ns_per_request (one allocate and one
// release), and for the workspace the share of requests that missed, plans made, and pages / the
// most bytes that were alive at once. heap: the same buffers outside of workspaces; raw: bytes of a workspace without records (memory/pmr/block_bytes.h). Other
// allocators: allocators.h.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/workspace/allocators.h"
#include "tidepool/memory/workspace/streams.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

// `cycle` runs drawn steps; the time is that of all cycles from the `warm`th on.
template <typename Cycle>
void RunStream(benchmark::State& state, Draw draw, int warm, size_t* most_alive,
               const Cycle& cycle) {
  std::mt19937_64 random(20261122);
  size_t requests = 0;
  *most_alive = 0;
  for (int i = 0; i < warm; ++i) {
    const std::vector<Step> steps = draw(random);
    *most_alive = std::max(*most_alive, MostAlive(steps));
    cycle(steps);
  }
  for (auto _ : state) {
    const std::vector<Step> steps = draw(random);
    requests += RequestsOf(steps);
    *most_alive = std::max(*most_alive, MostAlive(steps));
    const auto start = std::chrono::steady_clock::now();
    cycle(steps);
    state.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  state.counters["ns_per_request"] =
      benchmark::Counter(static_cast<double>(requests) * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

const int kWarmCycles = RunsOnce() ? 3 : 1000;

void StreamOf(benchmark::State& state, const Allocator& allocator, Draw draw) {
  std::vector<void*> blocks(1 << 16);
  size_t most_alive = 0;
  RunStream(state, draw, kWarmCycles, &most_alive, [&](const std::vector<Step>& steps) {
    PlayOn(allocator, steps, blocks);
    allocator.end_cycle();
  });
}

void StreamOfWorkspace(benchmark::State& state, Draw draw) {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  Workspace workspace("w", config);
  std::vector<BufferHandle> blocks(1 << 16);
  size_t most_alive = 0;
  uint64_t requests = 0;
  RunStream(state, draw, kWarmCycles, &most_alive, [&](const std::vector<Step>& steps) {
    WorkspaceScope scope(workspace);
    requests += RequestsOf(steps);
    PlayHere(steps, blocks);
  });
  const WorkspaceStats stats = workspace.stats();
  state.counters["missed"] = static_cast<double>(stats.misses) / static_cast<double>(requests);
  state.counters["plans"] = static_cast<double>(stats.plans);
  state.counters["held_ratio"] =
      static_cast<double>(workspace.size()) / static_cast<double>(most_alive);
}

// Arrays on the heap.
void StreamOfHeap(benchmark::State& state, Draw draw) {
  std::vector<BufferHandle> blocks(1 << 16);
  size_t most_alive = 0;
  RunStream(state, draw, kWarmCycles, &most_alive,
            [&](const std::vector<Step>& steps) { PlayHere(steps, blocks); });
}

// Raw bytes of a workspace's cycles.
void StreamOfRaw(benchmark::State& state, Draw draw) {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  Workspace workspace("w", config);
  std::vector<RawBlock> blocks(1 << 16);
  size_t most_alive = 0;
  RunStream(state, draw, kWarmCycles, &most_alive, [&](const std::vector<Step>& steps) {
    WorkspaceScope scope(workspace);
    PlayRawHere(steps, blocks);
  });
}

const int registered = [] {
  std::vector<Allocator> allocators = FindAllocators();
  for (Allocator& resource : StandardResources()) allocators.push_back(std::move(resource));
  for (const auto& [name, draw] : {std::pair<const char*, Draw>{"parser", &ParserDocument},
                                   {"200_lengths", &Sequence},
                                   {"32_batches", &Batch}}) {
    benchmark::RegisterBenchmark(
        (std::string("StreamOf/workspace/") + name).c_str(),
        [draw = draw](benchmark::State& state) { StreamOfWorkspace(state, draw); })
        ->UseManualTime();
    benchmark::RegisterBenchmark(
        (std::string("StreamOf/heap/") + name).c_str(),
        [draw = draw](benchmark::State& state) { StreamOfHeap(state, draw); })
        ->UseManualTime();
    benchmark::RegisterBenchmark(
        (std::string("StreamOf/raw/") + name).c_str(),
        [draw = draw](benchmark::State& state) { StreamOfRaw(state, draw); })
        ->UseManualTime();
    for (const Allocator& allocator : allocators) {
      benchmark::RegisterBenchmark(
          ("StreamOf/" + allocator.name + "/" + name).c_str(),
          [allocator, draw = draw](benchmark::State& state) { StreamOf(state, allocator, draw); })
          ->UseManualTime();
    }
  }
  return 0;
}();

}  // namespace
}  // namespace tidepool
