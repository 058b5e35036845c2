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

void Model::CheckOpen(const char* operation) const {
  if (manager.is_open()) return;
  ThrowFailedPrecondition(absl::StrCat(operation, ": model \"", name, "\" is closed"));
}

}  // namespace tidepool::nn
