// Kinds of cycles that come and go, beside malloc in the same process (P20 of docs/performance.md): what planning may cost.
//
//   bazel run //memory/workspace:stream_benchmark -- --benchmark_filter=Kinds
//
// Kinds/NAME: 30 requests of up to 2,000 bytes a cycle (lengths: 20 to 219), each released some requests later or at the end,
// first byte written, in a workspace of defaults and by malloc, 200 cycles of one and the same of the other, either first in
// turns as the second one finds the list of requests in the cache, of a new workspace. times_malloc_at_first: processor time
// of the first 20,000 cycles by that of malloc; times_malloc: of the last 50,000 of 100,000; with both in nanoseconds a
// request, and how many plans were made in all.
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
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

// What to do, one after the other: a request of so many bytes, or the release of one (0 bytes).
struct Step {
  uint32_t number;
  uint32_t bytes;
};
using Steps = std::vector<Step>;

// And what is left at the end.
void AddSteps(const Cycle& cycle, Steps* steps) {
  std::vector<bool> gone(cycle.size());
  for (uint32_t i = 0; i < cycle.size(); ++i) {
    for (const uint32_t released : cycle[i].goes) {
      steps->push_back({released, 0});
      gone[released] = true;
    }
    steps->push_back({i, static_cast<uint32_t>(cycle[i].bytes)});
  }
  for (uint32_t i = 0; i < cycle.size(); ++i) {
    if (!gone[i]) steps->push_back({i, 0});
  }
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
  const uint64_t chunk = RunsOnce() ? 10 : 200, cycles = RunsOnce() ? 40 : 100000;
  for (auto _ : state) {
    Random random(1);
    Workspace workspace("kinds");
    std::vector<BufferHandle> arrays(256);
    std::vector<void*> blocks(256);
    double ours[2] = {}, theirs[2] = {};
    size_t requests = 0;
    Steps steps;
    std::vector<size_t> ends;  // of cycles
    const auto play_ours = [&] {
      const double begin = ProcessorSeconds();
      const Step* step = steps.data();
      for (const size_t end : ends) {
        WorkspaceScope scope(workspace);
        for (; step != steps.data() + end; ++step) {
          if (step->bytes == 0) {
            arrays[step->number].Reset();
            continue;
          }
          arrays[step->number] = BufferHandle(AllocateHere(step->bytes));
          *reinterpret_cast<volatile char*>(arrays[step->number]->data) = 1;
        }
      }
      return ProcessorSeconds() - begin;
    };
    const auto play_theirs = [&] {
      const double begin = ProcessorSeconds();
      for (const Step& step : steps) {
        if (step.bytes == 0) {
          std::free(blocks[step.number]);
          continue;
        }
        blocks[step.number] = std::malloc(step.bytes);
        *static_cast<volatile char*>(blocks[step.number]) = 1;
      }
      return ProcessorSeconds() - begin;
    };
    for (uint64_t done = 0; done < cycles; done += chunk) {
      steps.clear();
      ends.clear();
      size_t made = 0;
      for (uint64_t i = 0; i < chunk; ++i) {
        const Cycle cycle = stream.next(random, done + i);
        AddSteps(cycle, &steps);
        ends.push_back(steps.size());
        made += cycle.size();
      }
      const bool ours_first = done / chunk % 2 == 0;
      double times[2];
      if (ours_first) times[0] = play_ours();
      times[1] = play_theirs();
      if (!ours_first) times[0] = play_ours();
      const bool late = done >= cycles / 2;
      if (!late && done >= cycles / 5) continue;
      ours[late] += times[0];
      theirs[late] += times[1];
      requests += late ? made : 0;
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
