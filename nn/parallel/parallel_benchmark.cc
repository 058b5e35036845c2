// Examples a second by workers of a ParallelWrapper, each with batches of the same size, beside one
// trainer alone.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/parallel/parallel_wrapper.h"

namespace tidepool::nn {
namespace {

constexpr int64_t kBatch = 32;
constexpr int kRounds = 8;  // of a pass

// 0 workers: a trainer alone.
void Fit(benchmark::State& state, const std::string& model, ParallelTraining training,
         int workers) {
  SetThreadCount(1);
  Network network({28, 28, 1}, LayersOf(model, 10), /*seed=*/1);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  ParallelWrapper parallel(trainer, {.workers = std::max(workers, 1), .training = training});
  const NDArray features = RandomUniform({kBatch, 28, 28, 1}, 0, 1, 1),
                labels = Zeros({kBatch}, DType::kInt64);
  const auto pass = [&] {
    if (workers == 0) {
      for (int i = 0; i < kRounds; ++i) trainer.Step([&] { return Batch(features, labels); });
      return;
    }
    int left = kRounds * workers;
    parallel.Fit([&]() -> std::optional<Batch> {
      if (left-- == 0) return std::nullopt;
      return Batch(features, labels);
    });
  };
  for (int i = 0; i < 3; ++i) pass();
  for (int w = 0; w < std::max(workers, 1); ++w)
    parallel.network(w).training_workspace().FinishPlanSearch();
  pass();
  const int64_t before = MemoryTracker::Global().system_allocations();
  for (auto _ : state) pass();
  state.SetItemsProcessed(state.iterations() * kRounds * std::max(workers, 1) * kBatch);
  state.counters["system_allocations"] =
      static_cast<double>(MemoryTracker::Global().system_allocations() - before);
}

void RegisterAll() {
  for (const std::string model : {"lenet", "mlp"}) {
    const auto add = [&](const std::string& name, ParallelTraining training, int workers) {
      benchmark::RegisterBenchmark(
          ("Fit/" + model + "/" + name).c_str(),
          [=](benchmark::State& state) { Fit(state, model, training, workers); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    };
    add("alone", ParallelTraining::kGradientSharing, 0);
    for (const int workers : {1, 2}) {
      add("sharing/" + std::to_string(workers), ParallelTraining::kGradientSharing, workers);
      add("averaging/" + std::to_string(workers), ParallelTraining::kParameterAveraging, workers);
    }
  }
}

const bool registered = (RegisterAll(), true);

}  // namespace
}  // namespace tidepool::nn
