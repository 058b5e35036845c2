// Greedy time and ratio, and what the search adds to it, by instance. One iteration of a search is
// one run from the start with the known capacity as its goal; its time is processor time.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "benchmark/benchmark.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/planning_testing.h"
#include "tidepool/memory/planning/problem_file.h"
#include "tidepool/memory/planning/search_planner.h"

namespace tidepool {
namespace {

constexpr int64_t kCapacity = 1048576;

std::vector<LifetimeBuffer> Instance(int64_t letter) {
  return ReadProblemFile(std::string("memory/planning/testdata/") + static_cast<char>(letter) +
                         ".1048576.csv")
      .buffers;
}

void Report(benchmark::State& state, size_t buffers, const Placement& placement,
            int64_t lower_bound) {
  state.counters["buffers"] = static_cast<double>(buffers);
  state.counters["ratio"] = static_cast<double>(placement.peak) / static_cast<double>(lower_bound);
}

void RunGreedy(benchmark::State& state, const std::vector<LifetimeBuffer>& buffers,
               int64_t alignment, int64_t bound) {
  Placement placement;
  for (auto _ : state) {
    placement = PlanGreedy(buffers, alignment);
    benchmark::DoNotOptimize(placement.peak);
  }
  Report(state, buffers.size(), placement, bound > 0 ? bound : placement.lower_bound);
}

void BM_GreedyOnInstance(benchmark::State& state) {
  state.SetLabel(std::string(1, static_cast<char>(state.range(0))));
  RunGreedy(state, Instance(state.range(0)), 1, 0);
}
BENCHMARK(BM_GreedyOnInstance)->DenseRange('A', 'F')->Unit(benchmark::kMicrosecond);

void BM_GreedyOnRandom(benchmark::State& state) {
  std::mt19937_64 random(1);
  const int count = static_cast<int>(state.range(0));
  RunGreedy(state, RandomProblem(random, count, 2 * count, count / 2, 1 << 20), 64, 0);
}
BENCHMARK(BM_GreedyOnRandom)->Arg(100)->Arg(500)->Arg(4000)->Unit(benchmark::kMicrosecond);

// Cycles of many requests that live for a short part of them; about 25 are alive at a time.
void BM_GreedyOnManyRandom(benchmark::State& state) {
  std::mt19937_64 random(1);
  const int count = static_cast<int>(state.range(0));
  RunGreedy(state, RandomProblem(random, count, 4 * int64_t{count}, 200, 1 << 16), 64, 0);
}
BENCHMARK(BM_GreedyOnManyRandom)
    ->Arg(10000)
    ->Arg(30000)
    ->Arg(100000)
    ->Arg(300000)
    ->Arg(1000000)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

void BM_GreedyOnTightRandom(benchmark::State& state) {
  std::mt19937_64 random(1);
  RunGreedy(state, TightProblem(random, static_cast<int>(state.range(0)), kCapacity), 64, 0);
}
BENCHMARK(BM_GreedyOnTightRandom)->Arg(500)->Unit(benchmark::kMicrosecond);

// Four buffers a layer.
void BM_GreedyOnTrainingTrace(benchmark::State& state) {
  std::mt19937_64 random(1);
  RunGreedy(state, TrainingTrace(random, static_cast<int>(state.range(0))), 64, 0);
}
BENCHMARK(BM_GreedyOnTrainingTrace)->Arg(25)->Arg(125)->Unit(benchmark::kMicrosecond);

void BM_SearchOnInstance(benchmark::State& state) {
  state.SetLabel(std::string(1, static_cast<char>(state.range(0))));
  const std::vector<LifetimeBuffer> buffers = Instance(state.range(0));
  SearchOptions options;
  options.alignment = 1;
  options.capacity = kCapacity;
  options.time_limit = absl::Seconds(30);
  Placement placement;
  int64_t nodes = 0;
  for (auto _ : state) {
    SearchPlanner planner(buffers, options);
    placement = planner.Run();
    nodes = planner.nodes();
  }
  Report(state, buffers.size(), placement, kCapacity);
  state.counters["nodes"] = static_cast<double>(nodes);
}
BENCHMARK(BM_SearchOnInstance)->DenseRange('A', 'F')->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidepool
