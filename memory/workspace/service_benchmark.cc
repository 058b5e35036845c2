// A service: threads that serve batches of 1 to 32 in turns (P17 of docs/performance.md).
//
//   bazel run //memory/workspace:service_benchmark -- --benchmark_filter=Service/pool/threads:64
//
// Service/HOW/threads:N, HOW one of pool (WorkspacePool), workspaces (one for each thread) and the allocators
// that are installed (allocators.h). Each request makes 49 arrays, writes a byte of each of their pages, and waits
// once in its middle for the others, so that as many requests are open at a time as there are threads. The time
// is the wall's for one request of memory (an allocate and a release) of all threads together. Counters, after a
// warm-up that is not timed: the most that the process's resident memory grew by while all were in the middle of
// a request (threads' stacks included; a run of its own for each), memory held and the most that was open at once
// by the ledger, plans made, and requests that missed or were served outside of ranges.
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/allocators.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr size_t kBatches = 32;
constexpr int kLayers = 24;
constexpr int kArrays = 1 + 2 * kLayers;
const int kCyclesPerThread = RunsOnce() ? 4 : 100;
constexpr double kMiB = 1 << 20;

size_t ResidentBytes() {
  size_t size = 0, resident = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%zu %zu", &size, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// One request of a service with a batch of that size. Blocks: Make(bytes) -> block, Data(block), Drop(block).
template <typename Blocks>
void Serve(size_t batch, Blocks& blocks, const std::function<void()>& wait) {
  auto x = blocks.Make(batch * 4096);
  WritePages(blocks.Data(x), batch * 4096);
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const size_t bytes = batch * (16384 - 512 * layer);
    auto y = blocks.Make(bytes);
    WritePages(blocks.Data(y), bytes);
    auto scratch = blocks.Make(batch * 2048);
    WritePages(blocks.Data(scratch), batch * 2048);
    blocks.Drop(x);
    blocks.Drop(scratch);
    x = std::move(y);
    if (layer == kLayers / 2) wait();
  }
  blocks.Drop(x);
}

struct HandleBlocks {
  BufferHandle Make(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }
  void* Data(const BufferHandle& block) { return block->data; }
  void Drop(BufferHandle& block) { block.Reset(); }
};

struct PlainBlocks {
  const Allocator& allocator;
  void* Make(size_t bytes) { return allocator.allocate(bytes); }
  void* Data(void* block) { return block; }
  void Drop(void*& block) { allocator.release(block); }
};

// Serves one request on that thread.
using Cycle = std::function<void(int thread, size_t batch, const std::function<void()>& wait)>;

// When all are in the middle of a request, the process's resident memory is looked at now and then.
struct Resident {
  const size_t before = ResidentBytes();
  size_t most = before;
  int looks = 0;
  void Look() {
    if (++looks % 16 == 0) most = std::max(most, ResidentBytes());
  }
};

double RunThreads(int threads, uint64_t seed, const Cycle& cycle, Resident& resident) {
  std::barrier together(threads, [&resident]() noexcept { resident.Look(); });
  const std::function<void()> wait = [&] { together.arrive_and_wait(); };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      std::mt19937_64 random(seed * 1000 + static_cast<uint64_t>(thread));
      for (int i = 0; i < kCyclesPerThread; ++i) cycle(thread, 1 + random() % kBatches, wait);
    });
  }
  for (std::thread& thread : running) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Run(benchmark::State& state, int threads, const Cycle& cycle,
         const std::function<void()>& warmed_up) {
  Resident resident;
  for (uint64_t seed = 1; seed <= 4; ++seed) RunThreads(threads, seed, cycle, resident);
  warmed_up();
  uint64_t seed = 100;
  for (auto _ : state) state.SetIterationTime(RunThreads(threads, seed++, cycle, resident));
  state.counters["resident_MiB"] = static_cast<double>(resident.most - resident.before) / kMiB;
  state.counters["ns_per_request"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * threads * kCyclesPerThread * kArrays * 1e-9,
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void ServiceOfPool(benchmark::State& state) {
  const auto threads = static_cast<int>(state.range(0));
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  WorkspacePool pool("service", config);
  HandleBlocks blocks;
  WorkspacePoolStats before;
  Run(
      state, threads,
      [&](int, size_t batch, const std::function<void()>& wait) {
        PooledScope scope(pool);
        Serve(batch, blocks, wait);
      },
      [&] { before = pool.stats(); });
  const WorkspacePoolStats stats = pool.stats();
  state.counters["held_MiB"] = static_cast<double>(stats.held_bytes) / kMiB;
  state.counters["most_open_MiB"] = static_cast<double>(stats.most_open_bytes) / kMiB;
  state.counters["plans"] = static_cast<double>(stats.plans);
  state.counters["missed"] = static_cast<double>(stats.misses - before.misses);
  state.counters["outside"] = static_cast<double>(stats.spills - before.spills);
}

void ServiceOfWorkspaces(benchmark::State& state) {
  const auto threads = static_cast<int>(state.range(0));
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  std::vector<std::unique_ptr<Workspace>> workspaces;
  for (int i = 0; i < threads; ++i) workspaces.push_back(std::make_unique<Workspace>("w", config));
  HandleBlocks blocks;
  uint64_t missed = 0, outside = 0;
  const auto sum = [&](uint64_t WorkspaceStats::*what) {
    uint64_t all = 0;
    for (const auto& workspace : workspaces) all += workspace->stats().*what;
    return all;
  };
  Run(
      state, threads,
      [&](int thread, size_t batch, const std::function<void()>& wait) {
        WorkspaceScope scope(*workspaces[static_cast<size_t>(thread)]);
        Serve(batch, blocks, wait);
      },
      [&] {
        missed = sum(&WorkspaceStats::misses);
        outside = sum(&WorkspaceStats::spills);
      });
  size_t held = 0;
  for (const auto& workspace : workspaces) held += workspace->size();
  state.counters["held_MiB"] = static_cast<double>(held) / kMiB;
  state.counters["plans"] = static_cast<double>(sum(&WorkspaceStats::plans));
  state.counters["missed"] = static_cast<double>(sum(&WorkspaceStats::misses) - missed);
  state.counters["outside"] = static_cast<double>(sum(&WorkspaceStats::spills) - outside);
}

void ServiceOf(benchmark::State& state, const Allocator& allocator) {
  const auto threads = static_cast<int>(state.range(0));
  PlainBlocks blocks{allocator};
  Run(
      state, threads,
      [&](int, size_t batch, const std::function<void()>& wait) {
        Serve(batch, blocks, wait);
        allocator.end_cycle();
      },
      [] {});
}

const int registered = [] {
  const auto add = [](const std::string& name, auto function) {
    benchmark::RegisterBenchmark(("Service/" + name).c_str(), function)
        ->ArgName("threads")
        ->Arg(8)
        ->Arg(64)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("pool", &ServiceOfPool);
  add("workspaces", &ServiceOfWorkspaces);
  std::vector<Allocator> allocators = FindAllocators();
  for (Allocator& resource : StandardResources()) allocators.push_back(std::move(resource));
  for (const Allocator& allocator : allocators) {
    add(allocator.name, [allocator](benchmark::State& state) { ServiceOf(state, allocator); });
  }
  return 0;
}();

}  // namespace
}  // namespace tidepool
