#include "tidepool/nn/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {

Model::Model(std::string model_name, int64_t model_classes, std::unique_ptr<Network> model_network)
    : name(std::move(model_name)),
      classes(model_classes),
      manager(NDManager::NewBaseManager(model_network->device(), absl::StrCat("model ", name))),
      network(std::move(model_network)) {
  manager.PlaceOnHeap();
  manager.AttachAll({network->parameters(), network->gradients()});
  manager.Cap();
}

std::shared_ptr<const ModelReplica> Model::ReplicaOn(Device device) {
  CheckOpen("replica");
  const NDArray& own = network->parameters();
  if (own.device() == device) return nullptr;
  const uint32_t version = own.buffer()->version.load(std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(replicas_->mutex);
  std::shared_ptr<const ModelReplica>& kept = replicas_->by_device[DeviceName(device)];
  if (kept != nullptr && kept->version == version && kept->manager.is_open()) return kept;
  auto replica = std::make_shared<ModelReplica>();
  replica->manager = manager.NewSubManager(absl::StrCat("parameters on ", DeviceName(device)), device);
  replica->parameters = network->ParametersIn(own.CopyTo(Place(replica->manager).OnDevice(device)));
  replica->version = version;
  replica->manager.Cap();
  kept = std::move(replica);
  return kept;
}

void Model::CheckOpen(const char* operation) const {
  if (manager.is_open()) return;
  ThrowFailedPrecondition(absl::StrCat(operation, ": model \"", name, "\" is closed"));
}

}  // namespace tidepool::nn
