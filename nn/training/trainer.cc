#include "tidepool/nn/training/trainer.h"

#include <optional>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool::nn {

Trainer::Trainer(Model& model, const UpdaterConfig& updater)
    : model_(&model),
      network_(*model.network),
      updater_(updater, model.network->parameters().shape(), model.network->device()) {
  model.CheckOpen("trainer");
  manager_ = model.manager.NewSubManager("trainer");
  for (const NDArray* state : updater_.state()) manager_.Attach(*state);
  manager_.Cap();
}

void Trainer::CheckOpen() const {
  if (model_ == nullptr) return;
  model_->CheckOpen("trainer");
  if (!manager_.is_open()) ThrowFailedPrecondition("trainer: it is closed");
}

double Trainer::Step(absl::FunctionRef<Batch()> make_batch) {
  if (model_ == nullptr) {
    WorkspaceScope scope(network_.training_workspace());
    double loss;
    {
      const Batch batch = make_batch();
      loss = network_.ComputeGradients(batch.features, batch.labels);
    }
    Update();
    return loss;
  }
  const Batch batch = NewBatch(make_batch);
  const double loss = ComputeGradients(batch);
  Update();
  return loss;
}

Batch Trainer::NewBatch(absl::FunctionRef<Batch()> make_batch) {
  CheckOpen();
  if (model_ == nullptr) {
    ThrowFailedPrecondition("trainer: NewBatch needs a trainer of a model, which has managers");
  }
  NDManager manager = manager_.NewCycleManager("batch", network_.training_workspace());
  Batch made;
  {
    const ManagerScope scope(manager);
    made = make_batch();
  }
  Batch batch;
  batch.lease = std::move(made.lease);
  batch.manager = std::move(manager);
  batch.features = std::move(made.features);
  batch.labels = std::move(made.labels);
  return batch;
}

double Trainer::ComputeGradients(const Batch& batch) {
  CheckOpen();
  std::optional<ManagerScope> scope;
  if (batch.manager.is_open()) scope.emplace(batch.manager);
  return network_.ComputeGradients(batch.features, batch.labels);
}

void Trainer::Update() {
  CheckOpen();
  const HandlesOwnScope handles;
  updater_.Apply(network_.gradients(), network_.parameters());
}

void Trainer::Close() {
  if (manager_.ownership()) manager_.Close();
}

}  // namespace tidepool::nn
