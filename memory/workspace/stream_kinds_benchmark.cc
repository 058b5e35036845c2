// Kinds of cycles that come and go, beside malloc in the same process (P20 of docs/performance.md): what planning may cost.
//
//   bazel run //memory/workspace:stream_benchmark -- --benchmark_filter=Kinds
//
// Kinds/NAME: 30 requests of up to 2,000 bytes a cycle (lengths: 20 to 219), each released some requests later or at the end,
// first byte written, in a workspace of defaults and by malloc, 1,000 cycles of one and the same of the other, of a new
// workspace. times_malloc_at_first: processor time of the first 20,000 cycles by that of malloc; times_malloc: of the last
// 50,000 of 100,000; with both in nanoseconds a request, and how many plans were made in all.
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/allocators.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using Random = std::mt19937_64;

struct Planned {
  size_t bytes;
  std::vector<uint32_t> goes;  // requests that are released before it
};
using Cycle = std::vector<Planned>;

double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

constexpr size_t kMostBytes = 2000;
constexpr uint32_t kRequests = 30;

// Kind number `kind`, of which the first `common` requests are those of every other.
Cycle KindOf(uint64_t kind, uint32_t common) {
  Cycle cycle(kRequests);
  for (uint32_t i = 0; i < kRequests; ++i) {
    Random random(i < common ? i : 1000 * (kind + 1) + i);
    cycle[i].bytes = 1 + random() % kMostBytes;
    const uint64_t draw = random() % 4;
    if (draw == 0) continue;  // to the end
    const uint64_t until = i + 1 + (draw == 1 ? 0 : random() % 8);
    if (until < kRequests) cycle[until].goes.push_back(i);
  }
  return cycle;
}

// Up to 219; at first they grow, as those of data that is sorted by length do.
Cycle LengthOf(Random& random, uint64_t number) {
  Cycle cycle(20 + random() % std::min<uint64_t>(200, 20 + number / 5));
  for (uint32_t i = 0; i < cycle.size(); ++i) {
    cycle[i].bytes = 512 + 64 * (i % 7);
    if (i >= 3) cycle[i].goes.push_back(i - 3);
  }
  return cycle;
}

struct Stream {
  const char* name;
  std::function<Cycle(Random&, uint64_t cycle)> next;
};

std::vector<Stream> Streams() {
  const auto times = [](uint64_t times, uint32_t common) {
    return [=](Random&, uint64_t cycle) { return KindOf(cycle / times, common); };
  };
  const auto drawn = [](uint64_t kinds, uint32_t common) {
    return [=](Random& random, uint64_t) { return KindOf(random() % kinds, common); };
  };
  return {
      {"one", times(UINT64_MAX, 0)},
      {"lengths", LengthOf},
      {"never_again", times(1, 0)},
      {"3_times", times(3, 0)},
      {"10_times", times(10, 0)},
      {"40_times", times(40, 0)},
      {"300_times", times(300, 0)},
      {"3_times_alike", times(3, 10)},
      {"100_drawn", drawn(100, 10)},
      {"2000_drawn", drawn(2000, 10)},
      {"20000_drawn", drawn(20000, 10)},
      {"20000_drawn_unlike", drawn(20000, 0)},
      {"20000_in_turns", [](Random&, uint64_t cycle) { return KindOf(cycle % 20000, 10); }},
  };
}

void Kinds(benchmark::State& state, const Stream& stream) {
  const uint64_t chunk = RunsOnce() ? 10 : 1000, cycles = RunsOnce() ? 40 : 100000;
  for (auto _ : state) {
    Random random(1);
    Workspace workspace("kinds");
    std::vector<BufferHandle> arrays(256);
    std::vector<void*> blocks(256);
    double ours[2] = {}, theirs[2] = {};
    size_t requests = 0;
    for (uint64_t done = 0; done < cycles; done += chunk) {
      std::vector<Cycle> drawn;
      for (uint64_t i = 0; i < chunk; ++i) drawn.push_back(stream.next(random, done + i));
      const double begin = ProcessorSeconds();
      for (const Cycle& cycle : drawn) {
        WorkspaceScope scope(workspace);
        for (uint32_t i = 0; i < cycle.size(); ++i) {
          for (const uint32_t gone : cycle[i].goes) arrays[gone].Reset();
          arrays[i] = BufferHandle(AllocateHere(cycle[i].bytes));
          *reinterpret_cast<volatile char*>(arrays[i]->data) = 1;
        }
        for (uint32_t i = 0; i < cycle.size(); ++i) arrays[i].Reset();
      }
      const double middle = ProcessorSeconds();
      for (const Cycle& cycle : drawn) {
        for (uint32_t i = 0; i < cycle.size(); ++i) {
          for (const uint32_t gone : cycle[i].goes) std::free(std::exchange(blocks[gone], nullptr));
          blocks[i] = std::malloc(cycle[i].bytes);
          *static_cast<volatile char*>(blocks[i]) = 1;
        }
        for (uint32_t i = 0; i < cycle.size(); ++i) std::free(std::exchange(blocks[i], nullptr));
      }
      const double end = ProcessorSeconds();
      const bool late = done >= cycles / 2;
      if (!late && done >= cycles / 5) continue;
      ours[late] += middle - begin;
      theirs[late] += end - middle;
      for (const Cycle& cycle : drawn) requests += late ? cycle.size() : 0;
    }
    state.counters["times_malloc_at_first"] = ours[0] / theirs[0];
    state.counters["times_malloc"] = ours[1] / theirs[1];
    state.counters["ns"] = ours[1] / static_cast<double>(requests) * 1e9;
    state.counters["malloc_ns"] = theirs[1] / static_cast<double>(requests) * 1e9;
    state.counters["plans"] = static_cast<double>(workspace.stats().plans);
  }
}

const int registered = [] {
  for (const Stream& stream : Streams()) {
    benchmark::RegisterBenchmark((std::string("Kinds/") + stream.name).c_str(),
                                 [stream](benchmark::State& state) { Kinds(state, stream); })
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
  return 0;
}();

}  // namespace
}  // namespace tidepool
