#include <cstdio>

#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/training/early_stopping.h"
#include "tidepool/nn/training/updater.h"
using namespace tidepool;
using namespace tidepool::nn;

int main() {
  // sin(x) from 64 points by a network of one hidden layer, all of its parameters in one array.
  const NDArray x = Linspace(-3, 3, 64).Reshape({64, 1}), y = Sin(x);
  NDArray parameters = RandomNormal({48}, 0, 0.5, 1), gradients = Zeros({48});
  const auto part = [](const NDArray& of, int64_t begin, const Shape& shape) {
    return of.Slice(0, begin, begin + shape.NumElements()).Reshape(shape);
  };

  UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kAdamW);
  config.learning_rate = 0.02;
  config.schedule = Schedule::Cosine(20).AfterWarmup(2, 0.1).PerEpoch();
  config.clipping = {ClippingKind::kGlobalNorm, 1};
  std::printf("%s\n", config.ToString().c_str());
  // Elements 16 to 32 are biases, which do not decay.
  Updater updater(config, {48}, Host(), DType::kFloat32,
                  {{.begin = 16, .end = 32, .decays = false}});
  const Loss loss({.kind = LossKind::kHuber, .delta = 0.5});

  EarlyStopping stopping({.patience = 3, .most_epochs = 25, .goal = 0.001});
  Workspace workspace("step");
  while (!stopping.should_stop()) {
    updater.set_epoch(stopping.epochs());
    double value = 0;
    for (int step = 0; step < 100; ++step) {
      WorkspaceScope scope(workspace);
      GradientTape tape;
      tape.Watch(parameters, gradients);
      const NDArray b = part(parameters, 16, {16});
      const NDArray h = Tanh(MatMul(x, part(parameters, 0, {1, 16}), {}, &b));
      const NDArray mean = loss.Mean(MatMul(h, part(parameters, 32, {16, 1})), y);
      value = mean.Item<float>();
      tape.Backward(mean);
      updater.Apply(gradients, parameters);
    }
    stopping.Observe(value);
  }
  std::printf("%s after some epochs, %s\n",
              stopping.reason() == StopReason::kGoal ? "the goal" : "no goal",
              loss.ToString().c_str());
  std::printf("requests beside the plan in the last steps: %d\n", workspace.spilled_count() > 0);
}
