#include <cstdio>
#include <filesystem>
#include <string>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/training/trainer.h"
#include "tidepool/nn/transfer.h"
using namespace tidepool;
using namespace tidepool::nn;

// Points and the quadrant each is in, or of two sides the one.
Batch Points(int64_t classes, uint64_t seed) {
  const NDArray points = RandomUniform({64, 2}, -1, 1, seed);
  NDArray labels = Zeros({64}, DType::kInt64);
  for (int64_t i = 0; i < 64; ++i) {
    const int side = points.At<float>({i, 0}) > 0, upper = points.At<float>({i, 1}) > 0;
    labels.mutable_data<int64_t>()[i] = classes == 4 ? 2 * upper + side : side;
  }
  return {points, labels};
}

double Learn(Trainer& trainer, int64_t classes) {
  double loss = 0;
  for (uint64_t step = 0; step < 300; ++step)
    loss = trainer.Step([&] { return Points(classes, step); });
  return loss;
}

int main() {
  const std::string path = std::filesystem::temp_directory_path() / "quadrants.safetensors";
  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  adam.learning_rate = 0.01;
  {
    NetworkOptions options;
    options.compute_type = DType::kFloat16;  // layers compute in 16 bits, parameters stay f32
    Network network(NetworkConfig::Sequential({2}, {Dense(32, Activation::kTanh),
                                                    Dense(16, Activation::kTanh), Dense(4)}),
                    options);
    Trainer trainer(network, adam);
    trainer.set_loss_scale({.first = 0x1p24, .growth_interval = 1000});  // too large on purpose
    const double loss = Learn(trainer, 4);
    const LossScale& scale = *trainer.loss_scale();
    std::printf("quadrants are learned: %d; %s steps were skipped, and all others done: %d\n",
                loss<0.2, scale.skipped()> 0 ? "some" : "no",
                trainer.steps() + scale.skipped() == 300);
    SaveParameters(network, path);
  }
  // The same body, which stays as it is, with a head of its own.
  NetworkOptions options;
  options.frozen = {"0.dense", "1.dense"};
  Network sides(NetworkConfig::Sequential(
                    {2}, {Dense(32, Activation::kTanh), Dense(16, Activation::kTanh), Dense(2)}),
                options);
  std::printf("%s\n", TransferParameters(path, sides, {.except = {"2.dense"}}).ToString().c_str());
  Trainer trainer(sides, adam);
  const double loss = Learn(trainer, 2);
  std::printf("sides are learned: %d, by %lld parameters\n", loss < 0.1,
              static_cast<long long>(sides.NumParameters()));
  std::filesystem::remove(path);
}
