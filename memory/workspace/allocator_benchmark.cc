// Workspaces beside general allocators on the same requests (P1, P2, P3 of docs/performance.md).
//
//   bazel run //memory/workspace:allocator_benchmark
//
// PairOf/ALLOCATOR/BYTES: allocate and release one block. CycleOf/ALLOCATOR/TRACE: a training step's
// requests in order (memory/planning/testdata/traces), one byte of each page written as its owner would; counters:
// ns_per_request (one allocate and one release, writes included), faults_per_cycle, and for the
// workspace planned peak / live lower bound. StreamOf/ALLOCATOR/STREAM (P20): cycles that are not alike,
// each drawn anew outside of the time: documents of a parser, sequences of 200 lengths, batches of 1 to 32;
// counters: ns_per_request, and for the workspace the share of requests that missed, plans made, and
// what it holds / the most bytes that were alive at once.
//
// tcmalloc, mimalloc and jemalloc are taken from the system's libraries when they are installed
// (libtcmalloc-minimal4, libmimalloc2.0, libjemalloc2); who is absent is printed.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/planning/problem_file.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

struct Allocator {
  std::string name;
  void* (*allocate)(size_t);
  void (*release)(void*);
};

// jemalloc needs more of the loader's static TLS than programs have to spare; the loader reads the
// setting when a program starts.
void RestartWithStaticTls() {
  if (std::getenv("GLIBC_TUNABLES") != nullptr) return;
  setenv("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=65536", 1);
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv("/proc/self/exe", pointers.data());
}

std::vector<Allocator> FindAllocators() {
  std::vector<Allocator> found = {{"glibc", &std::malloc, &std::free}};
  struct Peer {
    const char *name, *library, *allocate, *release;
  };
  constexpr Peer kPeers[] = {
      {"tcmalloc", "libtcmalloc_minimal.so.4", "tc_malloc", "tc_free"},
      {"mimalloc", "libmimalloc.so.2.0", "mi_malloc", "mi_free"},
      {"jemalloc", "libjemalloc.so.2", "malloc", "free"},
  };
#if defined(__SANITIZE_ADDRESS__)
  std::fprintf(stderr, "tcmalloc, mimalloc, jemalloc: not beside AddressSanitizer, which finds their leaks\n");
  return found;
#endif
  for (const Peer& peer : kPeers) {
    void* library = dlopen(peer.library, RTLD_NOW | RTLD_LOCAL);
    void* allocate = library != nullptr ? dlsym(library, peer.allocate) : nullptr;
    void* release = library != nullptr ? dlsym(library, peer.release) : nullptr;
    if (allocate == nullptr || release == nullptr) {
      std::fprintf(stderr, "%s: absent (%s)\n", peer.name, dlerror());
      continue;
    }
    found.push_back({peer.name, reinterpret_cast<void* (*)(size_t)>(allocate),
                     reinterpret_cast<void (*)(void*)>(release)});
  }
  return found;
}

// A cycle as steps: request `number` of `bytes`, or its release (bytes 0).
struct Step {
  uint32_t number;
  size_t bytes;
};

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

void WritePages(void* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(data)[at] = 1;
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
  std::vector<size_t> sizes(requests);
  auto cycle = [&] {
    for (const Step& step : steps) {
      if (step.bytes == 0) {
        allocator.release(blocks[step.number]);
      } else {
        blocks[step.number] = allocator.allocate(step.bytes);
        WritePages(blocks[step.number], step.bytes);
      }
    }
  };
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
    for (const Step& step : steps) {
      if (step.bytes == 0) {
        blocks[step.number].Reset();
      } else {
        blocks[step.number] = BufferHandle(AllocateHere(step.bytes));
        WritePages(blocks[step.number]->data, step.bytes);
      }
    }
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

// ---- streams ----------------------------------------------------------------------------------

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
  RestartWithStaticTls();
  const std::vector<Allocator> allocators = FindAllocators();
  for (size_t bytes : {size_t{64}, size_t{4096}, size_t{262144}, size_t{16} << 20, size_t{64} << 20}) {
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
      benchmark::RegisterBenchmark(
          ("CycleOf/" + allocator.name + "/" + name).c_str(),
          [allocator, steps, count](benchmark::State& state) {
            CycleOf(state, allocator, steps, count);
          });
    }
  }
  return 0;
}();

}  // namespace
}  // namespace tidepool
