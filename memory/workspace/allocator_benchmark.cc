// Workspaces beside general allocators on the same requests (P1, P2, P3 of docs/performance.md).
//
//   bazel run //memory/workspace:allocator_benchmark
//
// PairOf/ALLOCATOR/BYTES: allocate and release one block. CycleOf/ALLOCATOR/TRACE: a training step's
// requests in order (memory/planning/testdata/traces), one byte of each page written as its owner would; counters:
// ns_per_request (one allocate and one release, writes included), faults_per_cycle, and for the
// workspace planned peak / live lower bound.
//
// tcmalloc, mimalloc and jemalloc are taken from the system's libraries when they are installed
// (libtcmalloc-minimal4, libmimalloc2.0, libjemalloc2); who is absent is printed.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
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
