// What a batch costs that is made in the reader's place, and one that AsyncDataSetIterator has made
// ahead (P11 of docs/performance.md).
//
// A batch is 128 images of 784 bytes, made floats by ImageExamples. The reader sums them and then is
// busy for a time of the given mean (microseconds), as a step is. PlainIterator makes them in a
// workspace, on the reader's thread.
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
#include <optional>
#include <random>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/image_batches.h"

namespace tidepool::nn {
namespace {

constexpr int64_t kImages = 8192, kBatch = 128;

const LabelledImages& Images() {
  static const auto* const images = [] {
    auto* made = new LabelledImages{.count = kImages, .height = 28, .width = 28, .classes = 10};
    std::mt19937 random(1);
    made->pixels.resize(kImages * 784);
    for (uint8_t& pixel : made->pixels) pixel = static_cast<uint8_t>(random());
    made->labels.assign(kImages, 1);
    return made;
  }();
  return *images;
}

class Reader {
 public:
  explicit Reader(int64_t mean_microseconds) : mean_(mean_microseconds) {}
  void operator()(const DataSet& batch) {
    const float* values = batch.features.data<float>();
    float sums[16] = {};
    for (int64_t i = 0; i < kBatch * 784; i += 16) {
      for (int64_t j = 0; j < 16; ++j) sums[j] += values[i + j];
    }
    benchmark::DoNotOptimize(sums);
    if (mean_ == 0) return;
    const auto until =
        std::chrono::steady_clock::now() +
        std::chrono::nanoseconds(std::uniform_int_distribution<int64_t>(0, 2000 * mean_)(random_));
    while (std::chrono::steady_clock::now() < until) {
    }
  }

 private:
  int64_t mean_;
  std::mt19937 random_{2};
};

// `next` reads a batch; what it took from the system meanwhile is counted.
template <typename Next>
void Count(benchmark::State& state, Next next) {
  for (int i = 0; i < 200; ++i) next();
  const int64_t asked = MemoryTracker::Global().system_allocations(), faults = PageFaults();
  for (auto _ : state) next();
  state.SetItemsProcessed(state.iterations());
  state.counters["asked_of_system"] =
      static_cast<double>(MemoryTracker::Global().system_allocations() - asked);
  state.counters["page_faults"] = static_cast<double>(PageFaults() - faults);
}

void PlainIterator(benchmark::State& state) {
  ImageBatches batches(Images(), Batching{.batch_size = kBatch, .seed = 7});
  Workspace workspace("batch");
  Reader read(state.range(0));
  Count(state, [&] {
    const WorkspaceScope scope(workspace);
    std::optional<DataSet> batch = batches.Next();
    if (!batch.has_value()) batches.Reset(), batch = batches.Next();
    read(*batch);
  });
}

void AsyncIterator(benchmark::State& state) {
  ImageBatches batches(Images(), Batching{.batch_size = kBatch, .seed = 7});
  AsyncDataSetIterator ahead(batches,
                             {.prefetch = 4, .producers = static_cast<int>(state.range(1))});
  Reader read(state.range(0));
  Count(state, [&] {
    std::optional<DataSet> batch = ahead.Next();
    if (!batch.has_value()) ahead.Reset(), batch = ahead.Next();
    read(*batch);
  });
}

BENCHMARK(PlainIterator)->Arg(0)->Arg(50)->Arg(200)->UseRealTime();
BENCHMARK(AsyncIterator)->ArgsProduct({{0, 50, 200}, {1, 2}})->UseRealTime();

}  // namespace
}  // namespace tidepool::nn
