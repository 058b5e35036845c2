#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/block.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/training/trainer.h"
using namespace tidepool;
using namespace tidepool::nn;

struct Net : Block {
  Part first{*this, "first", Dense(16)};
  Part second{*this, "second", Dense(2)};
  NDArray Forward(const NDArray& x) const override { return second(Tanh(first(x))); }
};

int main() {
  // Tensors and autograd.
  NDArray w = Full({3}, 2.0);
  GradientTape tape;
  tape.Watch(w);
  const NDArray loss = Sum(w * w);
  tape.Backward(loss);
  std::printf("dw %s\n", tape.Gradient(w).ToString().c_str());

  // A module, an optimizer, a loop.
  Network net({{"point", {2}}}, std::make_unique<Net>(), {.seed = 1});
  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  adam.learning_rate = 0.01;
  Trainer trainer(net, adam);
  for (uint64_t i = 0; i < 480; ++i) {
    trainer.Step([&] {
      const NDArray x = RandomUniform({32, 2}, -1, 1, i);
      return Batch(x, Cast(x.Index(1, 1) > x.Index(1, 0), DType::kInt64));
    });
  }
  const NDArray x = RandomUniform({1000, 2}, -1, 1, 1000);
  const NDArray right =
      Equal(ArgMax(net.Output(x), 1), Cast(x.Index(1, 1) > x.Index(1, 0), DType::kInt64));
  std::printf("more than 970 of 1000 right: %d\n",
              Sum(Cast(right, DType::kInt64)).Item<int64_t>() > 970);

  const std::string path = std::filesystem::temp_directory_path() / "net_of_libtorch.safetensors";
  SaveParameters(net, path);  // safetensors.torch.load_file(path) in Python
  LoadParameters(path, net);
  std::filesystem::remove(path);

  // Instead of a caching allocator: the step's own workspace.
  const WorkspaceStats stats = net.training_workspace().stats();
  std::printf(
      "480 steps, %zu requests each from %zu bytes; outside of them: %zu, all in the first\n",
      static_cast<size_t>(stats.hits + stats.spills) / 480, stats.size_bytes,
      static_cast<size_t>(stats.spills));
}
