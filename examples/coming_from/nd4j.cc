#include <cstdio>
#include <memory>

#include "tidepool/eval/do_evaluation.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_registry.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/training/trainer.h"
using namespace tidepool;
using namespace tidepool::nn;

void Workspaces() {
  const NDArray weights = RandomNormal({100, 10}, 0, 0.1, 1);  // no workspace is open: on the heap
  NDArray total = Zeros({10}), last;
  for (int i = 0; i < 10; ++i) {
    WorkspaceScope scope(WorkspaceRegistry::ForCurrentThread().Get("LOOP", {}));
    const NDArray y = MatMul(RandomUniform({32, 100}, 0, 1, i), weights) + 1;
    total += Sum(y, 0);  // in place: the total stays on the heap
    last = Sum(y, 1).Detach();
    const ScopeOutOfWorkspaces out;
    const NDArray beside = Zeros({5});
    if (i == 0)
      std::printf("attached: %d %d %d\n", y.IsAttached(), last.IsAttached(), beside.IsAttached());
  }
  const WorkspaceStats stats = WorkspaceRegistry::ForCurrentThread().Get("LOOP", {}).stats();
  std::printf(
      "10 cycles, the pages hold %zu bytes; %zu bytes were requested in each, %zu alive at once\n",
      stats.size_bytes, stats.requested_bytes, stats.live_lower_bound_bytes);
}

void ANetwork() {
  const NDArray points = RandomUniform({512, 2}, -1, 1, 1);
  const NDArray sides = Cast(points.Index(1, 0) > points.Index(1, 1), DType::kInt64);
  ExampleIterator<DataSet> batches(std::make_shared<ArrayExamples>(points, sides),
                                   {.batch_size = 32, .seed = 7});
  AsyncDataSetIterator ahead(batches, {.prefetch = 2});

  NetworkOptions options;
  options.seed = 1;
  options.training_mode = WorkspaceMode::kEnabled;
  Model model(
      "sides", 2,
      std::make_unique<Network>(
          NetworkConfig::Sequential({2}, {Dense(16, Activation::kTanh), Dense(2)}), options));
  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  adam.learning_rate = 0.01;
  Trainer trainer(model, adam);
  for (int epoch = 0; epoch < 30; ++epoch, ahead.Reset()) trainer.Fit(ahead);
  Evaluation evaluation(2);
  DoEvaluation(*model.network, batches, {.outputs = OutputsAre::kLogits}, evaluation);
  const WorkspaceStats stats = model.network->training_workspace().stats();
  std::printf(
      "accuracy above 0.97: %d; requests outside of the pages in 480 steps: %zu, all in the "
      "first\n",
      evaluation.Accuracy() > 0.97, static_cast<size_t>(stats.spills));
}

int main() {
  Workspaces();
  ANetwork();
  NDArray leaked;
  {
    WorkspaceScope scope(WorkspaceRegistry::ForCurrentThread().Get("LOOP", {}));
    leaked = Ones({3});
  }
  try {
    leaked + 1;
  } catch (const Error& error) {
    std::printf("%s\n", error.message().c_str());
  }
}
