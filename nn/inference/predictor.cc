#include "tidepool/nn/inference/predictor.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {

void MoveOut(NDList& list, const Place& caller) {
  for (NDArray& array : list) MoveOut(array, caller);
}

PredictorCore::PredictorCore(Model& model, const std::string& name, int64_t budget_bytes,
                             const Device* device)
    : model_(model),
      workspace_("predictor", WorkspaceConfig::Inference(),
                 device != nullptr ? *device : model.network->device()) {
  model.CheckOpen("predictor");
  manager_ = model.manager.NewSubManager(name, workspace_.device());
  if (budget_bytes > 0) manager_.SetBudget(budget_bytes);
}

void PredictorCore::Run(absl::FunctionRef<void(PredictorContext&)> prepare,
                        absl::FunctionRef<void(PredictorContext&)> call) {
  model_.CheckOpen("predictor");
  if (!prepared_) {
    // Not in a call's manager: what is prepared outlives the first one.
    PredictorContext context{model_, manager_, manager_};
    const ScopeOutOfWorkspaces heap;
    const ManagerScope scope(manager_);
    prepare(context);
    prepared_ = true;
    manager_.Cap();
  }
  if (workspace_.device() != model_.network->device()) {
    const ScopeOutOfWorkspaces heap;
    replica_ = model_.ReplicaOn(workspace_.device());
  }
  NDManager request = manager_.NewCycleManager("request", workspace_);
  PredictorContext context{model_, request, manager_};
  const ManagerScope scope(request);
  call(context);
}

NDList PredictorCore::Forward(const NDList& inputs) const {
  if (inputs.size() != 1) {
    ThrowInvalidArgument(absl::StrCat("predictor: the network takes one array, the translator gave ",
                                      inputs.size(), ": ", inputs.ToString()));
  }
  if (replica_ != nullptr) return {model_.network->Forward(inputs[0], replica_->parameters)};
  return {model_.network->Forward(inputs[0])};
}

}  // namespace tidepool::nn
