// What a steady training step asks of the device, counted on the emulation: kernels and products beside those of PyTorch's
// compiled step, copies, waits.
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/trainer.h"
#include "tidepool/tools/benchmarks/training_networks.h"

namespace tidepool::nn {
namespace {

constexpr Device kDevice{DeviceType::kCuda, 0};

struct Counted {
  EmulatedCuda::Counters step;  // of the last one
  ReplayedStep::Stats graphs;
};

EmulatedCuda::Counters Difference(const EmulatedCuda::Counters& now,
                                  const EmulatedCuda::Counters& before) {
  EmulatedCuda::Counters d;
  d.kernels = now.kernels - before.kernels;
  d.products = now.products - before.products;
  d.copies = now.copies - before.copies;
  d.fills = now.fills - before.fills;
  d.graph_launches = now.graph_launches - before.graph_launches;
  d.synchronizations = now.synchronizations - before.synchronizations;
  d.device_synchronizations = now.device_synchronizations - before.device_synchronizations;
  d.allocations = now.allocations - before.allocations + now.pool_allocations -
                  before.pool_allocations + now.host_allocations - before.host_allocations +
                  now.maps - before.maps;
  return d;
}

Counted Train(const std::string& model, int64_t batch, int steps, bool graphs) {
  static const LabelledImages& digits =
      *new LabelledImages(LoadImageFolder("examples/data/mnist").train);
  Network network(tools::TrainingNetwork(model, {28, 28, 1}, 10), {.seed = 1, .device = kDevice});
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  if (graphs) trainer.set_graphs(true);
  ImageBatches batches(digits, batch);
  EmulatedCuda& emulated = EmulatedCuda::Get();
  EmulatedCuda::Counters before;
  for (int i = 0; i < steps; ++i) {
    emulated.Finish();
    before = emulated.counters();
    trainer.Step([&] { return batches.Make(i); });
  }
  emulated.Finish();
  Counted counted{Difference(emulated.counters(), before), {}};
  if (graphs) counted.graphs = *trainer.graph_stats();
  return counted;
}

// PyTorch 2.15's compiled step of the same network and batch launches so many, counted in the code that it generates for an
// NVIDIA H100 (tools/benchmarks/torch_launches.py; copies left out there and here).
void ExpectAtMost(const std::string& model, int64_t pytorch) {
  constexpr int64_t kBatch = 32;
  const EmulatedCuda::Counters step = Train(model, kBatch, 3, false).step;
  testing::Test::RecordProperty(model, static_cast<int>(step.kernels + step.products));
  EXPECT_LE(step.kernels + step.products + step.fills, pytorch)
      << step.kernels << " kernels, " << step.products << " products, " << step.fills << " fills";
  // Features and labels, losses; none from place to place on the device.
  EXPECT_EQ(step.copies, 3);
  EXPECT_EQ(step.synchronizations, 1);
}

TEST(StepLaunches, OfLenetAreNoMoreThanPyTorchsCompiledStep) { ExpectAtMost("lenet", 30); }
TEST(StepLaunches, OfTransformerBlocksAreNoMoreThanPyTorchsCompiledStep) {
  ExpectAtMost("transformer", 95);
}

// Every network of the benchmarks: nothing in a step of theirs bars a capture, and a replayed step is one launch, the upload of
// what changes and the losses' way back, whatever the network.
TEST(StepLaunches, EveryNetworkIsCaptured) {
  for (const char* model : {"mlp", "lenet", "residual", "lstm", "transformer"}) {
    SCOPED_TRACE(model);
    const Counted counted = Train(model, 2, 7, true);
    EXPECT_EQ(counted.graphs.failures, 0) << counted.graphs.last_failure;
    EXPECT_EQ(counted.step.graph_launches, 1);
    EXPECT_EQ(counted.step.synchronizations, 1);
    EXPECT_EQ(counted.step.device_synchronizations, 0);
    EXPECT_EQ(counted.step.allocations, 0);
  }
}

}  // namespace
}  // namespace tidepool::nn
