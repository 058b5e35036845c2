// Kinds of cycles that come and go, beside malloc in the same process (P20 of docs/performance.md): what planning may cost.
//
//   bazel run //memory/workspace:stream_benchmark -- --benchmark_filter=Kinds
//
// Kinds/NAME: 30 requests of up to 2,000 bytes a cycle (6_ and 12_: so many; lengths: 20 to 219; blocks: 20 to 219; one_grows: 40 of up to 4 MiB),
// each released some requests later or at the end, first byte written, by four: arrays in a new workspace of defaults, malloc,
// raw bytes in another workspace, and arrays without a workspace. 200 cycles of one, then the same of the next, each first in
// turns as who comes later finds the list of requests in the cache. at_first: processor time of arrays in the first fifth
// of 100,000 cycles (one_grows: 10,000) by that of malloc; times_malloc: in the last half, likewise raw_bytes; times_no_workspace: of arrays in
// the workspace by those without; in nanoseconds a request ns, malloc_ns; and how many plans were made in all.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/pmr/block_bytes.h"
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
Cycle KindOf(uint64_t kind, uint32_t common, uint32_t requests = kRequests) {
  Cycle cycle(requests);
  for (uint32_t i = 0; i < requests; ++i) {
    Random random(i < common ? i : 1000 * (kind + 1) + i);
    cycle[i].bytes = 1 + random() % kMostBytes;
    const uint64_t draw = random() % 4;
    if (draw == 0) continue;  // to the end
    const uint64_t until = i + 1 + (draw == 1 ? 0 : random() % 8);
    if (until < requests) cycle[until].goes.push_back(i);
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

// Two or three of 40 pieces, of 10 to 73 requests, one behind the other.
Cycle BlocksOf(Random& random, uint64_t) {
  Cycle cycle;
  for (uint64_t pieces = 2 + random() % 2; pieces > 0; --pieces) {
    Random piece(random() % 40);
    const auto begin = static_cast<uint32_t>(cycle.size());
    const auto requests = static_cast<uint32_t>(10 + piece() % 64);
    cycle.resize(begin + requests);
    for (uint32_t i = 0; i < requests; ++i) {
      cycle[begin + i].bytes = 1 + piece() % kMostBytes;
      const auto until = static_cast<uint32_t>(i + 1 + piece() % 8);
      if (until < requests) cycle[begin + until].goes.push_back(begin + i);
    }
  }
  return cycle;
}

// A list of large ones, of which one is a little larger each time, as what is kept of a text that is written is.
Cycle OneGrows(Random&, uint64_t number) {
  Random random(7);
  Cycle cycle(40);
  for (uint32_t i = 0; i < cycle.size(); ++i) {
    cycle[i].bytes = 1 + random() % (size_t{4} << 20);
    const auto until = static_cast<uint32_t>(i + 1 + random() % 12);
    if (until < cycle.size()) cycle[until].goes.push_back(i);
  }
  cycle[17].bytes = (size_t{1} << 20) + 64 * number;
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
  uint64_t cycles = 100000;
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
      {"6_one", [](Random&, uint64_t) { return KindOf(0, 0, 6); }},
      {"6_never_again", [](Random&, uint64_t cycle) { return KindOf(cycle, 0, 6); }},
      {"12_100_drawn", [](Random& random, uint64_t) { return KindOf(random() % 100, 0, 12); }},
      {"12_never_again", [](Random&, uint64_t cycle) { return KindOf(cycle, 0, 12); }},
      {"blocks", BlocksOf},
      {"one_grows", OneGrows, 10000},
  };
}

// What each of the four has of the requests, by their numbers.
class Sides {
 public:
  static constexpr size_t kSides = 4;
  enum Side : size_t { kWorkspace, kMalloc, kRawBytes, kNoWorkspace };

  // The processor's seconds that `side` took for the cycles of `steps`, which end at `ends`.
  double Play(Side side, const Steps& steps, const std::vector<size_t>& ends) {
    const double begin = ProcessorSeconds();
    const Step* step = steps.data();
    for (const size_t end : ends) {
      const Step* const until = steps.data() + end;
      switch (side) {
        case kWorkspace: {
          WorkspaceScope scope(workspace_);
          PlayArrays(step, until);
          break;
        }
        case kRawBytes: {
          WorkspaceScope scope(raw_);
          for (const Step* at = step; at != until; ++at) {
            Block& block = blocks_[at->number];
            if (at->bytes == 0) {
              ReleaseBytes(block.data, block.bytes);
            } else {
              block = {AllocateBytesHere(at->bytes), at->bytes};
              *static_cast<volatile char*>(block.data) = 1;
            }
          }
          break;
        }
        case kMalloc:
          for (const Step* at = step; at != until; ++at) {
            void*& block = blocks_[at->number].data;
            if (at->bytes == 0) {
              std::free(block);
            } else {
              block = std::malloc(at->bytes);
              *static_cast<volatile char*>(block) = 1;
            }
          }
          break;
        case kNoWorkspace:
          PlayArrays(step, until);
          break;
      }
      step = until;
    }
    return ProcessorSeconds() - begin;
  }
  size_t plans() const { return workspace_.stats().plans; }

 private:
  struct Block {
    void* data;
    size_t bytes;
  };
  static constexpr size_t kMostRequests = 256;

  void PlayArrays(const Step* step, const Step* until) {
    for (; step != until; ++step) {
      BufferHandle& array = arrays_[step->number];
      if (step->bytes == 0) {
        array.Reset();
      } else {
        array = BufferHandle(AllocateHere(step->bytes));
        *reinterpret_cast<volatile char*>(array->data) = 1;
      }
    }
  }

  Workspace workspace_{"kinds"}, raw_{"raw"};
  std::array<BufferHandle, kMostRequests> arrays_;
  std::array<Block, kMostRequests> blocks_;
};

void Kinds(benchmark::State& state, const Stream& stream) {
  const uint64_t chunk = RunsOnce() ? 10 : 200, cycles = RunsOnce() ? 40 : stream.cycles;
  for (auto _ : state) {
    Random random(1);
    Sides sides;
    std::array<double, Sides::kSides> first{}, late{};
    size_t requests = 0;
    Steps steps;
    std::vector<size_t> ends;  // of cycles
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
      const bool is_first = done < cycles / 5, is_late = done >= cycles / 2;
      for (size_t i = 0; i < Sides::kSides; ++i) {
        const auto side = static_cast<Sides::Side>((done / chunk + i) % Sides::kSides);
        const double seconds = sides.Play(side, steps, ends);
        if (is_first) first[side] += seconds;
        if (is_late) late[side] += seconds;
      }
      if (is_late) requests += made;
    }
    const double ours = late[Sides::kWorkspace], theirs = late[Sides::kMalloc];
    state.counters["at_first"] = first[Sides::kWorkspace] / first[Sides::kMalloc];
    state.counters["times_malloc"] = ours / theirs;
    state.counters["raw_bytes"] = late[Sides::kRawBytes] / theirs;
    state.counters["times_no_workspace"] = ours / late[Sides::kNoWorkspace];
    state.counters["ns"] = ours / static_cast<double>(requests) * 1e9;
    state.counters["malloc_ns"] = theirs / static_cast<double>(requests) * 1e9;
    state.counters["plans"] = static_cast<double>(sides.plans());
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
