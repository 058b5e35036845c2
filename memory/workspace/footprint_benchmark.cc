// Resident memory beside what was alive, while a workspace learns and after (P15 of docs/performance.md).
//
//   bazel run //memory/workspace:footprint_benchmark
//
// Footprint/ALLOCATOR/STREAM/equal: one cycle of a stream again and again; different: each drawn anew. One byte of
// each page of each request is written. Each runs in a process of its own; learning: the most that its resident memory grew by in the
// first 3 cycles, by the most bytes alive at once in one of them; after: the same of 10 more. bound_MiB: the most alive
// at once. external: a workspace that takes what does not fit from outside for good (SpillPolicy::kExternal);
// heap: the same buffers, with their records, outside of workspaces; raw: bytes of a workspace that have no records
// (memory/pmr/block_bytes.h).
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
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

constexpr int kLearning = 3;
const int kAfter = RunsOnce() ? 1 : 10;

// Bytes; `what` is a line of /proc/self/status. The name of the line ends with a colon.
double StatusBytes(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == what && status >> kib) return kib * 1024;
  }
  std::fprintf(stderr, "/proc/self/status has no %s\n", what.c_str());
  std::_Exit(1);
}

// The most resident memory is counted anew from what is resident now.
void ForgetMostResident() { std::ofstream("/proc/self/clear_refs") << "5\n"; }

struct Footprint {
  double learning = 0, after = 0, bound = 0;
};

using Cycle = std::function<void(const std::vector<Step>&)>;

Footprint Measure(Draw draw, bool equal, const Cycle& cycle) {
  std::mt19937_64 random(20261123);
  std::vector<std::vector<Step>> cycles;
  for (int i = 0; i < kLearning + kAfter; ++i) {
    cycles.push_back(equal && i > 0 ? cycles[0] : draw(random));
  }
  const auto bound = [&](int begin, int end) {
    size_t most = 0;
    for (int i = begin; i < end; ++i) most = std::max(most, MostAlive(cycles[i]));
    return static_cast<double>(most);
  };
  const double before = StatusBytes("VmRSS:");
  ForgetMostResident();
  for (int i = 0; i < kLearning; ++i) cycle(cycles[i]);
  Footprint found;
  found.learning = (StatusBytes("VmHWM:") - before) / bound(0, kLearning);
  ForgetMostResident();
  for (int i = kLearning; i < kLearning + kAfter; ++i) cycle(cycles[i]);
  found.bound = bound(0, kLearning + kAfter);
  found.after = (StatusBytes("VmHWM:") - before) / found.bound;
  return found;
}

// Calls `measure` in a process of its own.
Footprint InAnotherProcess(const std::function<Footprint()>& measure) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    const Footprint found = measure();
    const bool written = write(ends[1], &found, sizeof(found)) == sizeof(found);
    std::_Exit(written ? 0 : 1);
  }
  close(ends[1]);
  Footprint found;
  if (child < 0 || read(ends[0], &found, sizeof(found)) != sizeof(found)) {
    found = {-1, -1, -1};  // it ran out of memory, or was refused
  }
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return found;
}

Footprint OfAllocator(const Allocator& allocator, Draw draw, bool equal) {
  std::vector<void*> blocks(1 << 16);
  return Measure(draw, equal, [&](const std::vector<Step>& steps) {
    PlayOn(allocator, steps, blocks);
    allocator.end_cycle();
  });
}

Footprint OfWorkspace(SpillPolicy spill, Draw draw, bool equal) {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  config.policy_spill = spill;
  Workspace workspace("w", config);
  std::vector<BufferHandle> blocks(1 << 16);
  return Measure(draw, equal, [&](const std::vector<Step>& steps) {
    WorkspaceScope scope(workspace);
    PlayHere(steps, blocks);
  });
}

Footprint OfHeap(Draw draw, bool equal) {
  std::vector<BufferHandle> blocks(1 << 16);
  return Measure(draw, equal, [&](const std::vector<Step>& steps) { PlayHere(steps, blocks); });
}

Footprint OfRaw(Draw draw, bool equal) {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  Workspace workspace("w", config);
  std::vector<RawBlock> blocks(1 << 16);
  return Measure(draw, equal, [&](const std::vector<Step>& steps) {
    WorkspaceScope scope(workspace);
    PlayRawHere(steps, blocks);
  });
}

void Report(benchmark::State& state, const std::function<Footprint()>& measure) {
  Footprint found;
  for (auto _ : state) found = InAnotherProcess(measure);
  state.counters["learning"] = found.learning;
  state.counters["after"] = found.after;
  state.counters["bound_MiB"] = found.bound / (1 << 20);
}

const int registered = [] {
  const auto add = [](const std::string& name, auto measure) {
    benchmark::RegisterBenchmark(("Footprint/" + name).c_str(),
                                 [measure](benchmark::State& state) { Report(state, measure); })
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  };
  std::vector<Allocator> allocators = FindAllocators();
  for (Allocator& resource : StandardResources()) allocators.push_back(std::move(resource));
  for (const auto& [stream, draw] :
       {std::pair<const char*, Draw>{"large_temporary", &LargeTemporary},
        {"large_sizes", &LargeSizes},
        {"parser", &ParserDocument},
        {"200_lengths", &Sequence},
        {"32_batches", &Batch},
        {"drawn_lives", &DrawnLives},
        {"alternating", &Alternating},
        {"saw", &Saw},
        {"drawn_first", &DrawnFirst},
        {"drifting", &Drifting}}) {
    for (const bool equal : {true, false}) {
      if (draw == &LargeTemporary && !equal) continue;
      const bool large = draw != &ParserDocument && draw != &Sequence && draw != &Batch;
      const std::string suffix = std::string("/") + stream + (equal ? "/equal" : "/different");
      add("workspace" + suffix,
          [draw = draw, equal] { return OfWorkspace(SpillPolicy::kReallocate, draw, equal); });
      add("external" + suffix,
          [draw = draw, equal] { return OfWorkspace(SpillPolicy::kExternal, draw, equal); });
      add("heap" + suffix, [draw = draw, equal] { return OfHeap(draw, equal); });
      add("raw" + suffix, [draw = draw, equal] { return OfRaw(draw, equal); });
      for (const Allocator& allocator : allocators) {
        // It would need gigabytes for what lives one after the other.
        if (large && allocator.name == "pmr_monotonic") continue;
        if (large && RunsOnce()) continue;
        add(allocator.name + suffix,
            [allocator, draw = draw, equal] { return OfAllocator(allocator, draw, equal); });
      }
    }
  }
  return 0;
}();

}  // namespace
}  // namespace tidepool
