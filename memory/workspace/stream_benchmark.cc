// Streams of cycles that are not alike, beside general allocators (P20 of docs/performance.md).
//
//   bazel run //memory/workspace:stream_benchmark
//
// StreamOf/ALLOCATOR/STREAM: documents of a parser, sequences of 200 lengths, batches of 1 to 32, each drawn
// anew outside of the time, one byte of each page written. Counters: ns_per_request (one allocate and one
// release), and for the workspace the share of requests that missed, plans made, and pages / the
// most bytes that were alive at once. Allocators: allocators.h.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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

// The next cycle of a stream.
using Draw = std::vector<Step> (*)(std::mt19937_64&);

class Script {
 public:
  explicit Script(size_t most) { alive_.reserve(most); }
  void Make(size_t bytes) {
    alive_.push_back(count_);
    steps_.push_back({count_++, bytes});
  }
  void Release(size_t which) {
    steps_.push_back({alive_[which], 0});
    alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  size_t alive() const { return alive_.size(); }
  std::vector<Step> Finish() {
    while (!alive_.empty()) Release(alive_.size() - 1);
    return std::move(steps_);
  }

 private:
  uint32_t count_ = 0;
  std::vector<uint32_t> alive_;
  std::vector<Step> steps_;
};

// About 6,000 nodes of a document, most of them small, some texts and arrays that grow by copying.
std::vector<Step> ParserDocument(std::mt19937_64& random) {
  Script script(8192);
  const size_t nodes = 5000 + random() % 2000;
  for (size_t i = 0; i < nodes; ++i) {
    script.Make(32 + random() % 200);
    if (random() % 3 == 0) script.Make(16 + random() % (random() % 20 == 0 ? 4000 : 120));
    if (random() % 8 == 0) {  // a vector that grows
      size_t bytes = 64;
      script.Make(bytes);
      for (size_t n = random() % 6; n > 0; --n) {
        script.Make(bytes *= 2);
        script.Release(script.alive() - 2);
      }
    }
    if (random() % 16 == 0) script.Release(random() % script.alive());
  }
  return script.Finish();
}

// An unrolled network over a sequence of 100 to 299 steps: activations live until they are passed again.
std::vector<Step> Sequence(std::mt19937_64& random) {
  const size_t length = 100 + random() % 200;
  Script script(2 * length + 8);
  script.Make(length * 512);
  for (size_t i = 0; i < length; ++i) {
    script.Make(4 * 4096);
    script.Make(4096);
    script.Release(script.alive() - 2);
  }
  for (size_t i = 0; i < length; ++i) {
    script.Make(4 * 4096);
    script.Release(script.alive() - 1);
    script.Release(script.alive() - 1);
  }
  return script.Finish();
}

// Forward passes of 32 batch sizes.
std::vector<Step> Batch(std::mt19937_64& random) {
  const size_t batch = 1 + random() % 32;
  Script script(64);
  script.Make(batch * 4096);
  for (size_t layer = 0; layer < 24; ++layer) {
    script.Make(batch * (16384 - 512 * layer));
    script.Make(batch * 2048);
    script.Release(script.alive() - 3);
    script.Release(script.alive() - 1);
  }
  return script.Finish();
}

size_t RequestsOf(const std::vector<Step>& steps) { return steps.size() / 2; }

size_t MostAlive(const std::vector<Step>& steps) {
  std::vector<size_t> sizes(RequestsOf(steps));
  size_t alive = 0, most = 0;
  for (const Step& step : steps) {
    if (step.bytes == 0) {
      alive -= sizes[step.number];
    } else {
      alive += sizes[step.number] = (step.bytes + 63) / 64 * 64;
    }
    most = std::max(most, alive);
  }
  return most;
}

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

constexpr int kWarmCycles = 1000;

void StreamOf(benchmark::State& state, const Allocator& allocator, Draw draw) {
  std::vector<void*> blocks(1 << 16);
  size_t most_alive = 0;
  RunStream(state, draw, kWarmCycles, &most_alive, [&](const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (step.bytes == 0) {
        allocator.release(blocks[step.number]);
      } else {
        blocks[step.number] = allocator.allocate(step.bytes);
        WritePages(blocks[step.number], step.bytes);
      }
    }
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
    for (const Step& step : steps) {
      if (step.bytes == 0) {
        blocks[step.number].Reset();
      } else {
        blocks[step.number] = BufferHandle(AllocateHere(step.bytes));
        WritePages(blocks[step.number]->data, step.bytes);
      }
    }
  });
  const WorkspaceStats stats = workspace.stats();
  state.counters["missed"] = static_cast<double>(stats.misses) / static_cast<double>(requests);
  state.counters["plans"] = static_cast<double>(stats.plans);
  state.counters["held_ratio"] =
      static_cast<double>(workspace.size()) / static_cast<double>(most_alive);
}

const int registered = [] {
  const std::vector<Allocator> allocators = FindAllocators();
  for (const auto& [name, draw] : {std::pair<const char*, Draw>{"parser", &ParserDocument},
                                   {"200_lengths", &Sequence},
                                   {"32_batches", &Batch}}) {
    benchmark::RegisterBenchmark(
        (std::string("StreamOf/workspace/") + name).c_str(),
        [draw = draw](benchmark::State& state) { StreamOfWorkspace(state, draw); })
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
