// Gradients of LeNet and MLP by a backward pass that is written by hand, by a tape, and by networks, which train by one.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "tidepool/memory/testing/quiet_statistics.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/training/hand_step.h"

namespace tidepool::nn {
namespace {

enum class By { kHand, kTape, kNetwork };

void Step(benchmark::State& state, const std::string& model, By by) {
  SetThreadCount(1);
  const int64_t batch = state.range(0);
  const bool images = model == "lenet";
  Network network(images ? Shape{28, 28, 1} : Shape{784}, LayersOf(model, 10), 7);
  const Shape shape = images ? Shape{batch, 28, 28, 1} : Shape{batch, 784};
  const NDArray features = RandomUniform(shape, 0, 1, 1),
                labels = RandomIntegers({batch}, 0, 10, 2);
  NDArray gradients = Zeros(network.gradients().shape());
  GradientTape tape;
  tape.Clear();
  for (auto _ : state) {
    WorkspaceScope scope(network.training_workspace());
    const double loss = by == By::kHand ? GradientsByHand(network, gradients, features, labels)
                        : by == By::kTape
                            ? GradientsByTape(tape, network, gradients, features, labels)
                            : network.ComputeGradients(features, labels);
    benchmark::DoNotOptimize(loss);
  }
  state.counters["planned_peak"] =
      static_cast<double>(network.training_workspace().stats().planned_peak_bytes);
}
void LeNetByHand(benchmark::State& state) { Step(state, "lenet", By::kHand); }
void LeNetByTape(benchmark::State& state) { Step(state, "lenet", By::kTape); }
void LeNetByNetwork(benchmark::State& state) { Step(state, "lenet", By::kNetwork); }
void MlpByHand(benchmark::State& state) { Step(state, "mlp", By::kHand); }
void MlpByTape(benchmark::State& state) { Step(state, "mlp", By::kTape); }
void MlpByNetwork(benchmark::State& state) { Step(state, "mlp", By::kNetwork); }
BENCHMARK(LeNetByHand)->Apply(QuietStatistics)->Arg(32)->Arg(128);
BENCHMARK(LeNetByTape)->Apply(QuietStatistics)->Arg(32)->Arg(128);
BENCHMARK(LeNetByNetwork)->Apply(QuietStatistics)->Arg(32)->Arg(128);
BENCHMARK(MlpByHand)->Apply(QuietStatistics)->Arg(32)->Arg(128);
BENCHMARK(MlpByTape)->Apply(QuietStatistics)->Arg(32)->Arg(128);
BENCHMARK(MlpByNetwork)->Apply(QuietStatistics)->Arg(32)->Arg(128);

// A thousand calls on one element: what one of them takes, recorded or not, and its gradient.
constexpr int kCalls = 1000;

void SmallCalls(benchmark::State& state, bool recorded, bool backward) {
  NDArray x = Ones({1});
  const NDArray y = Ones({1});
  for (auto _ : state) {
    if (!recorded) {
      NDArray z = x;
      for (int i = 0; i < kCalls; ++i) z = Multiply(z, y);
      benchmark::DoNotOptimize(z.raw_data());
      continue;
    }
    GradientTape tape;
    tape.Watch(x);
    NDArray z = x;
    for (int i = 0; i < kCalls; ++i) z = Multiply(z, y);
    if (backward) tape.Backward(z);
  }
  state.SetItemsProcessed(state.iterations() * kCalls);
}
void SmallCallsUnrecorded(benchmark::State& state) { SmallCalls(state, false, false); }
void SmallCallsRecorded(benchmark::State& state) { SmallCalls(state, true, false); }
void SmallCallsBackward(benchmark::State& state) { SmallCalls(state, true, true); }
BENCHMARK(SmallCallsUnrecorded)->Apply(QuietStatistics);
BENCHMARK(SmallCallsRecorded)->Apply(QuietStatistics);
BENCHMARK(SmallCallsBackward)->Apply(QuietStatistics);

}  // namespace
}  // namespace tidepool::nn
