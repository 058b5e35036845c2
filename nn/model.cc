#include "tidepool/nn/model.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {

namespace {

NDManager NewManagerOf(const std::string& name, int64_t classes, const Network* network) {
  const auto refuse = [&](const std::string& why) {
    ThrowInvalidArgument(absl::StrCat("model \"", name, "\": ", why));
  };
  if (network == nullptr) refuse("no network");
  const Shape& outputs = network->output_shape();
  if (outputs.rank() == 0 || outputs[outputs.rank() - 1] != classes) {
    refuse(absl::StrCat(classes, " classes, but its network's outputs are ", outputs.ToString()));
  }
  return NDManager::NewBaseManager(network->device(), absl::StrCat("model ", name));
}

}  // namespace

Model& ModelLink::Get(const char* operation) const {
  Model* const model = model_.load(std::memory_order_acquire);
  if (model == nullptr) {
    ThrowFailedPrecondition(absl::StrCat(operation, ": model \"", name_, "\" was destroyed"));
  }
  model->CheckOpen(operation);
  return *model;
}

Model::Model(std::string model_name, int64_t model_classes, std::unique_ptr<Network> model_network)
    : name(std::move(model_name)),
      classes(model_classes),
      manager(NewManagerOf(name, classes, model_network.get())),
      network(std::move(model_network)),
      link_(std::make_shared<ModelLink>(this, name)) {
  manager.PlaceOnHeap();
  if (!network->is_hosted()) manager.AttachAll({network->arrays(), network->gradients()});
  manager.Cap();
}

Model::Model(Model&& other) noexcept
    : name(std::move(other.name)),
      classes(std::exchange(other.classes, 0)),
      notes(std::move(other.notes)),
      manager(std::move(other.manager)),
      network(std::move(other.network)),
      replicas_(std::move(other.replicas_)),
      link_(std::move(other.link_)) {
  if (link_ != nullptr) link_->model_.store(this, std::memory_order_release);
}

Model& Model::operator=(Model&& other) noexcept {
  if (this == &other) return *this;
  Unlink();
  // What was here goes like in the destructor, the last member first.
  link_ = std::move(other.link_);
  replicas_ = std::move(other.replicas_);
  network = std::move(other.network);
  manager = std::move(other.manager);
  notes = std::move(other.notes);
  classes = std::exchange(other.classes, 0);
  name = std::move(other.name);
  if (link_ != nullptr) link_->model_.store(this, std::memory_order_release);
  return *this;
}

Model::~Model() { Unlink(); }

void Model::Unlink() noexcept {
  if (link_ != nullptr) link_->model_.store(nullptr, std::memory_order_release);
}

void Model::SetFrozen(absl::Span<const std::string> patterns) {
  CheckOpen("set_frozen");
  network->SetFrozen(patterns);
  manager.Uncap();
  const absl::Cleanup cap = [this] { manager.Cap(); };
  manager.Attach(network->gradients());
}

std::shared_ptr<const ModelLink> Model::LinkFor(const char* operation) const {
  CheckOpen(operation);
  return link_;
}

std::shared_ptr<const ModelReplica> Model::ReplicaOn(Device device) {
  CheckOpen("replica");
  const NDArray& own = network->arrays();
  if (own.device() == device) return nullptr;
  const bool is_known = !own.buffer()->MayBeWrittenOutside();
  const uint32_t version = own.buffer()->version.load(std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(replicas_->mutex);
  std::shared_ptr<const ModelReplica>& kept = replicas_->by_device[DeviceName(device)];
  if (is_known && kept != nullptr && kept->version == version && kept->manager.is_open())
    return kept;
  auto replica = std::make_shared<ModelReplica>();
  replica->manager =
      manager.NewSubManager(absl::StrCat("parameters on ", DeviceName(device)), device);
  replica->parameters = network->ParametersIn(own.CopyTo(Place(replica->manager).OnDevice(device)));
  replica->version = version;
  replica->manager.Cap();
  kept = std::move(replica);
  return kept;
}

void Model::CheckOpen(const char* operation) const {
  if (network == nullptr) {
    ThrowFailedPrecondition(
        absl::StrCat(operation, ": the model has no network: it was moved from, or never had one"));
  }
  if (manager.is_open()) return;
  ThrowFailedPrecondition(absl::StrCat(operation, ": model \"", name, "\" is closed"));
}

}  // namespace tidepool::nn
