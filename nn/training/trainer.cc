#include "tidepool/nn/training/trainer.h"

#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool::nn {

double Trainer::Step(absl::FunctionRef<Batch()> make_batch) {
  WorkspaceScope scope(network_.training_workspace());
  double loss;
  {
    const Batch batch = make_batch();
    loss = network_.ComputeGradients(batch.features, batch.labels);
  }
  updater_.Apply(network_.gradients(), network_.parameters());
  return loss;
}

}  // namespace tidepool::nn
