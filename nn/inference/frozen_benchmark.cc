// A predictor beside frozen networks, in f32, in 8 bits and in 16-bit floats, on one thread. Counters: bytes that are held for the weights (a
// predictor's: parameters and what kernels packed of them), and of a frozen network's runtime.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

enum Kind : int64_t { kLeNet, kSeparable, kMlp, kWide };

// A small MobileNet (Howard et al. 2017) for images of 32x32: 3x3 depthwise and 1x1 convolutions in turns.
std::vector<AnyLayer> SeparableLayers() {
  std::vector<AnyLayer> layers;
  Conv2dAttributes first;
  first.pad_top = first.pad_bottom = first.pad_left = first.pad_right = 1;
  first.stride_height = first.stride_width = 2;
  layers.push_back(std::make_unique<Conv2D>(16, 3, 3, Activation::kRelu, first));
  int64_t channels = 16;
  for (const auto& [filters, stride] :
       {std::pair<int64_t, int64_t>{32, 1}, {64, 2}, {64, 1}, {128, 2}, {128, 1}}) {
    Conv2dAttributes depthwise = first;
    depthwise.stride_height = depthwise.stride_width = stride;
    depthwise.groups = channels;
    layers.push_back(std::make_unique<Conv2D>(channels, 3, 3, Activation::kRelu, depthwise));
    layers.push_back(std::make_unique<Conv2D>(filters, 1, 1, Activation::kRelu));
    channels = filters;
  }
  layers.push_back(std::make_unique<Dense>(10));
  return layers;
}

Network NetworkOf(int64_t kind) {
  if (kind == kLeNet) return Network({28, 28, 1}, LeNetLayers(10), 3);
  if (kind == kMlp) return Network({28, 28, 1}, MlpLayers(10), 3);
  if (kind == kWide) {
    return Network({1024},
                   {Dense(2048, Activation::kRelu), Dense(2048, Activation::kRelu), Dense(10)}, 3);
  }
  return Network({32, 32, 3}, SeparableLayers(), 3);
}

NDArray Examples(const Network& network, int64_t count) {
  std::vector<int64_t> dims = {count};
  dims.insert(dims.end(), network.input_shape().span().begin(), network.input_shape().span().end());
  return RandomUniform(Shape(dims), 0, 1, 1, 1, Place::Heap());
}

int64_t External() { return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kExternal); }

// One request by our kernels, or by the engine behind the same call (P13: beside OfFrozen, which is the engine alone).
void OfPredictor(benchmark::State& state, EngineUse engine) {
  SetThreadCount(1);
  Reclaimer::Global().RunNow();
  const int64_t before = External();
  Model model("benchmark", 10, std::make_unique<Network>(NetworkOf(state.range(0))));
  NoopTranslator translator;
  Predictor<NDList, NDList> predictor(model, translator);
  predictor.set_engine(engine, {.batches = {state.range(1)}});
  const NDList x = {Examples(*model.network, state.range(1))};
  for (int i = 0; i < 5; ++i) predictor.Predict(x);
  for (auto _ : state) benchmark::DoNotOptimize(predictor.Predict(x));
  state.counters["weights"] =
      static_cast<double>(4 * model.network->NumParameters() + External() - before);
}
BENCHMARK_CAPTURE(OfPredictor, kernels, EngineUse::kNever)
    ->ArgNames({"network", "batch"})
    ->ArgsProduct({{kLeNet, kSeparable, kMlp, kWide}, {1, 32}});
BENCHMARK_CAPTURE(OfPredictor, engine, EngineUse::kAlways)
    ->ArgNames({"network", "batch"})
    ->ArgsProduct({{kLeNet, kSeparable, kMlp, kWide}, {1, 32}});

void OfFrozen(benchmark::State& state, FrozenType type, std::vector<int> float_layers = {},
              QuantisedRanges ranges = QuantisedRanges::kStatic) {
  SetThreadCount(1);
  const Network network = NetworkOf(state.range(0));
  FrozenOptions options{.type = type, .batches = {state.range(1)}};
  options.calibration = Examples(network, 64);
  options.float_layers = std::move(float_layers);
  options.ranges = ranges;
  const FrozenNetwork frozen(network, options);
  const NDArray x = Examples(network, state.range(1));
  NDArray y = frozen.Run(x);
  for (auto _ : state) frozen.RunInto(x, y);
  const FrozenNetwork::Stats stats = frozen.stats();
  state.counters["weights"] = static_cast<double>(stats.weight_bytes);
  state.counters["runtime"] = static_cast<double>(stats.runtime_bytes + stats.shared_bytes);
}
BENCHMARK_CAPTURE(OfFrozen, f32, FrozenType::kFloat32)
    ->ArgNames({"network", "batch"})
    ->ArgsProduct({{kLeNet, kSeparable, kMlp, kWide}, {1, 32}});
BENCHMARK_CAPTURE(OfFrozen, int8, FrozenType::kInt8)
    ->ArgNames({"network", "batch"})
    ->ArgsProduct({{kLeNet, kSeparable, kMlp, kWide}, {1, 32}});
BENCHMARK_CAPTURE(OfFrozen, int8_dynamic, FrozenType::kInt8, {}, QuantisedRanges::kDynamic)
    ->ArgNames({"network", "batch"})
    ->ArgsProduct({{kLeNet, kSeparable, kMlp, kWide}, {1, 32}});
BENCHMARK_CAPTURE(OfFrozen, float16, FrozenType::kFloat16)
    ->ArgNames({"network", "batch"})
    ->ArgsProduct({{kLeNet, kSeparable, kMlp, kWide}, {1, 32}});
// Kernels of 8 bits take channels by eight: an image of one is quicker in f32.
BENCHMARK_CAPTURE(OfFrozen, int8_but_the_first, FrozenType::kInt8, {0})
    ->ArgNames({"network", "batch"})
    ->ArgsProduct({{kLeNet, kSeparable}, {1, 32}});

}  // namespace
}  // namespace tidepool::nn
