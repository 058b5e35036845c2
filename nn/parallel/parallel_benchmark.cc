// Examples a second by workers of a ParallelWrapper, each with batches of the same size, beside one
// trainer alone; and requests a second of one image by ParallelInference, which clients ask for one
// behind the other.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/parallel/parallel_inference.h"
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
  FunctionIterator<DataSet> batches(kRounds * std::max(workers, 1),
                                    [&](int64_t) { return DataSet(features, labels); });
  AsyncShieldDataSetIterator same(batches);  // there is nothing to make ahead
  const auto pass = [&] {
    workers == 0 ? static_cast<void>(trainer.Fit(same)) : static_cast<void>(parallel.Fit(same));
    same.Reset();
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

constexpr int kRequests = 256;  // of all clients in an iteration

void Serve(benchmark::State& state, const std::string& model, InferenceMode mode, int workers,
           int clients) {
  SetThreadCount(1);
  ParallelInference service(std::make_shared<Network>(Shape{28, 28, 1}, LayersOf(model, 10), 1),
                            {.mode = mode, .workers = workers});
  const NDArray image = RandomUniform({1, 28, 28, 1}, 0, 1, 1);
  const auto serve = [&] {
    std::vector<std::thread> threads;
    for (int c = 0; c < clients; ++c) {
      threads.emplace_back([&] {
        for (int i = 0; i < kRequests / clients; ++i) service.Output(image);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  serve();
  const ParallelInferenceStats before = service.stats();
  for (auto _ : state) serve();
  const ParallelInferenceStats after = service.stats();
  state.SetItemsProcessed(after.requests - before.requests);
  state.counters["of_a_batch"] = static_cast<double>(after.requests - before.requests) /
                                 static_cast<double>(after.batches - before.batches);
}

void RegisterServices(const std::string& model) {
  const auto add = [&](const std::string& name, InferenceMode mode, int workers, int clients) {
    benchmark::RegisterBenchmark(
        ("Serve/" + model + "/" + name + "/clients:" + std::to_string(clients)).c_str(),
        [=](benchmark::State& state) { Serve(state, model, mode, workers, clients); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  };
  for (const int clients : {1, 2, 16}) add("in_place", InferenceMode::kInPlace, 1, clients);
  for (const int workers : {1, 2}) {
    for (const int clients : {1, 16}) {
      add("sequential/" + std::to_string(workers), InferenceMode::kSequential, workers, clients);
      add("batched/" + std::to_string(workers), InferenceMode::kBatched, workers, clients);
    }
  }
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
    RegisterServices(model);
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
