// A training step and a request of each example network in each mode: time, what its workspaces
// take, and what it asks of the system.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

constexpr int64_t kBatch = 32;
constexpr std::pair<WorkspaceMode, const char*> kModes[] = {{WorkspaceMode::kNone, "none"},
                                                            {WorkspaceMode::kSingle, "single"},
                                                            {WorkspaceMode::kSeparate, "separate"},
                                                            {WorkspaceMode::kEnabled, "enabled"}};

void Report(benchmark::State& state, const LayerWorkspaceManager& manager, int64_t allocations) {
  double bytes = 0, bound = 0, peak = 0;
  for (const Workspace* workspace : manager.workspaces()) {
    const WorkspaceStats stats = workspace->stats();
    bytes += static_cast<double>(workspace->size());
    peak += static_cast<double>(stats.planned_peak_bytes);
    bound += static_cast<double>(stats.live_lower_bound_bytes);
  }
  state.counters["bytes"] = bytes;
  state.counters["peak_over_bound"] = peak > 0 && bound > 0 ? peak / bound : 0;
  state.counters["system_allocations"] =
      static_cast<double>(allocations) / static_cast<double>(state.iterations());
}

void Train(benchmark::State& state, const std::string& name, WorkspaceMode mode) {
  SetThreadCount(1);
  NetworkOptions options;
  options.mode = mode;
  Network network = ExampleNetwork(name, options);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  const NDArray pixels = RandomUniform({kBatch, 28, 28, 1}, 0, 1, 1);
  const auto step = [&] {
    trainer.Step([&]() -> Batch { return {pixels.Dup(), Zeros({kBatch}, DType::kInt64)}; });
  };
  for (int i = 0; i < 4; ++i) step();
  if (mode == WorkspaceMode::kEnabled) network.training_workspace().FinishPlanSearch();
  step();
  const int64_t before = MemoryTracker::Global().system_allocations();
  for (auto _ : state) step();
  Report(state, network.training_workspaces(),
         MemoryTracker::Global().system_allocations() - before);
}

void Infer(benchmark::State& state, const std::string& name, WorkspaceMode mode) {
  SetThreadCount(1);
  NetworkOptions options;
  options.mode = mode;
  Network network = ExampleNetwork(name, options);
  const NDArray pixels = RandomUniform({kBatch, 28, 28, 1}, 0, 1, 1);
  std::vector<int64_t> dims = {kBatch};
  for (const int64_t size : network.output_shape().span()) dims.push_back(size);
  NDArray output = Zeros(Shape(dims));
  for (int i = 0; i < 5; ++i) network.OutputInto(pixels, output);
  const int64_t before = MemoryTracker::Global().system_allocations();
  for (auto _ : state) network.OutputInto(pixels, output);
  Report(state, network.inference_workspaces(),
         MemoryTracker::Global().system_allocations() - before);
}

const bool kRegistered = [] {
  for (const char* name : kExampleNetworks) {
    for (const auto& [mode, text] : kModes) {
      for (auto* const run : {&Train, &Infer}) {
        const std::string title =
            std::string(run == &Train ? "train/" : "infer/") + name + "/" + text;
        benchmark::RegisterBenchmark(
            title.c_str(), [run = run, name = std::string(name),
                            mode = mode](benchmark::State& state) { run(state, name, mode); });
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace tidepool::nn
