// Executions per second. Arguments: none; counters: executions/s, steps per execution.
#include <benchmark/benchmark.h>

#include <atomic>

#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool::explorer {
namespace {

// Two threads of five operations: a hand-over each way.
void HandOver(Execution& execution) {
  struct State {
    Sync::Atomic<int> to{0}, from{0}, claims{0};
    Sync::Plain<int> value{0};
  };
  State& state = execution.Make<State>();
  execution.Thread([&state] {
    state.value.set(1);
    state.to.store(1, std::memory_order_release);
    state.claims.fetch_add(1, std::memory_order_acq_rel);
    Check(state.from.load(std::memory_order_acquire) <= 1, "is a flag");
    state.claims.load(std::memory_order_relaxed);
    state.to.store(2, std::memory_order_relaxed);
  });
  execution.Thread([&state] {
    if (state.to.load(std::memory_order_acquire) == 1) state.value.get();
    state.claims.fetch_add(1, std::memory_order_acq_rel);
    state.from.store(1, std::memory_order_release);
    int expected = 2;
    state.claims.compare_exchange_strong(expected, 3, std::memory_order_acq_rel);
    state.from.load(std::memory_order_relaxed);
  });
}

void Run(benchmark::State& state, const Options& options) {
  int64_t executions = 0, steps = 0;
  for (auto _ : state) {
    const Result result = Explore(options, HandOver);
    if (!result.passed()) state.SkipWithError(result.report().c_str());
    executions += result.executions;
    steps += result.steps;
  }
  state.counters["executions"] = benchmark::Counter(executions, benchmark::Counter::kIsRate);
  state.counters["steps"] = static_cast<double>(steps) / executions;
}

void BM_Bounded(benchmark::State& state) { Run(state, {.preemptions = 3}); }
BENCHMARK(BM_Bounded);

void BM_Full(benchmark::State& state) { Run(state, {.search = Search::kFull}); }
BENCHMARK(BM_Full);

void BM_Random(benchmark::State& state) { Run(state, {.search = Search::kRandom}); }
BENCHMARK(BM_Random);

}  // namespace
}  // namespace tidepool::explorer
