// Steps within a budget: time beside a step that keeps everything, bytes, stalls, for each network, share and strategy.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/budget/activation_planner.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

const bool kBrief = std::getenv("TIDEPOOL_BENCHMARK_ONCE") != nullptr;
const int64_t kBatch = kBrief ? 2 : 32;
const int kDepth = kBrief ? 3 : 24;

void StepWithin(benchmark::State& state, const std::string& name, const std::string& limit,
                BudgetStrategy strategy) {
  Network network =
      name == "lenet" ? ExampleNetwork(name, {.seed = 3}) : DeepNetwork(name, kDepth, {.seed = 3});
  StepBudgetReport report;
  try {
    report =
        SetStepBudget(network, {.limit = limit, .strategy = strategy, .shape = {.batch = kBatch}});
  } catch (const OutOfMemoryError& error) {
    state.SkipWithError(error.message().substr(0, 160).c_str());
    return;
  }
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  uint64_t step = 0;
  double stalls = 0;
  for (auto _ : state) {
    trainer.Step([&] {
      Batch batch{RandomUniform({kBatch, 28, 28, 1}, 0, 1, ++step),
                  NDArray({kBatch}, DType::kInt64)};
      std::fill_n(batch.labels.mutable_data<int64_t>(), kBatch, static_cast<int64_t>(step % 10));
      return batch;
    });
    stalls += OutcomeOf(network, report, 0).stall_seconds;
  }
  const StepBudgetOutcome outcome = OutcomeOf(network, report, 0);
  state.counters["bytes"] = static_cast<double>(outcome.actual_bytes);
  state.counters["planned"] = static_cast<double>(report.planned_bytes);
  state.counters["share"] =
      static_cast<double>(outcome.actual_bytes) / static_cast<double>(report.unlimited_bytes);
  state.counters["predicted_ratio"] = report.predicted.seconds / report.unlimited_seconds;
  state.counters["spilled"] = static_cast<double>(outcome.spilled_bytes);
  state.counters["stall_s"] = benchmark::Counter(stalls, benchmark::Counter::kAvgIterations);
}

// The search alone, of a chain of so many layers with an array each, of all sizes.
void FindPlansOf(benchmark::State& state) {
  const auto layers = static_cast<int>(state.range(0));
  ActivationProblem problem;
  uint64_t drawn = 1;
  for (int i = 0; i < layers; ++i) {
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    const auto bytes = static_cast<int64_t>(drawn >> 44) * 64 + 64;
    LayerActivations layer;
    layer.forward_seconds = 1e-9 * static_cast<double>(bytes);
    layer.backward_seconds = 2 * layer.forward_seconds;
    layer.forward_bytes = layer.backward_bytes = layer.gradient_bytes = bytes;
    problem.layers.push_back(layer);
    ActivationArray array{.bytes = bytes, .made = i, .used_until = i + 1, .kept_by = {i + 1}};
    if (i + 1 < layers) array.input_of = {i + 1};
    problem.arrays.push_back(std::move(array));
  }
  size_t plans = 0;
  for (auto _ : state) plans = FindPlans(problem, BudgetStrategy::kAuto).size();
  state.counters["plans"] = static_cast<double>(plans);
}
BENCHMARK(FindPlansOf)->Arg(100)->Arg(1000)->Unit(benchmark::kMillisecond);

[[maybe_unused]] const bool kRegistered = [] {
  std::vector<std::string> names(std::begin(kDeepNetworks), std::end(kDeepNetworks));
  names.push_back("lenet");
  for (const std::string& name : names) {
    for (const char* const limit : {"100%", "75%", "50%", "25%", "10%"}) {
      for (const BudgetStrategy strategy :
           {BudgetStrategy::kAuto, BudgetStrategy::kSpill, BudgetStrategy::kRecompute}) {
        if (limit == std::string("100%") && strategy != BudgetStrategy::kAuto) continue;
        benchmark::RegisterBenchmark(
            absl::StrCat(name, "/", limit, "/", BudgetStrategyName(strategy)).c_str(),
            [=](benchmark::State& state) { StepWithin(state, name, limit, strategy); })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace tidepool::nn
