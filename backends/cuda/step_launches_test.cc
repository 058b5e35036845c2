// What a steady training step asks of the device: kernels, products, copies, fills.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

EmulatedCuda::Counters Step(const std::string& model, int64_t count, bool graphs) {
  static const LabelledImages& digits =
      *new LabelledImages(LoadImageFolder("examples/data/mnist").train);
  Network network(tools::TrainingNetwork(model, {28, 28, 1}, 10), {.seed = 1, .device = kDevice});
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  if (graphs) trainer.set_graphs(true);
  ImageBatches batches(digits, count);
  EmulatedCuda& emulated = EmulatedCuda::Get();
  EmulatedCuda::Counters before;
  for (int i = 0; i < (std::getenv("STEPS") ? std::atoi(std::getenv("STEPS")) : 6); ++i) {
    emulated.Finish();
    before = emulated.counters();
    trainer.Step([&] { return batches.Make(i); });
  }
  emulated.Finish();
  const EmulatedCuda::Counters now = emulated.counters();
  std::printf("%s %" PRId64 " %d: kernels %" PRId64 " products %" PRId64 " (fused %" PRId64 ") copies %" PRId64 " fills %" PRId64 " sync %" PRId64 " graphs %" PRId64 "\n",
              model.c_str(), count, graphs, now.kernels - before.kernels, now.products - before.products, now.fused_products - before.fused_products,
              now.copies - before.copies, now.fills - before.fills, now.synchronizations - before.synchronizations,
              now.graph_launches - before.graph_launches);
  if (graphs) std::printf("%s\n", trainer.graph_stats()->last_failure.c_str());
  std::fflush(stdout);
  return now;
}

TEST(StepLaunches, Counts) {
  const char* batch = std::getenv("BATCH");
  for (const char* model : {"mlp", "lenet", "residual", "lstm", "transformer"}) {
    if (std::getenv("MODEL") && std::string(std::getenv("MODEL")) != model) continue;
    for (bool graphs : {false, true}) Step(model, batch ? std::atoi(batch) : 4, graphs);
  }
}

}  // namespace
}  // namespace tidepool::nn
