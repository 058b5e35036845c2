#include "tidepool/ndarray/manager/nd_manager.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

std::vector<const BufferHandle*> HandlesOf(const char* op,
                                           std::initializer_list<NDResource> resources) {
  std::vector<const BufferHandle*> handles;
  for (const NDResource& resource : resources) {
    for (size_t i = 0; i < resource.size(); ++i) {
      if (!(resource[i].is_defined() && resource[i].IsInScope())) {
        resource[i].CheckAlive(op, absl::StrCat("X[", handles.size(), "]").c_str());
      }
      handles.push_back(&resource[i].buffer());
    }
  }
  return handles;
}

}  // namespace

NDManager& NDManager::System() {
  static NDManager& root = *new NDManager(Ownership::ProcessAlias());
  return root;
}

NDManager NDManager::NewBaseManager(Device device, std::string_view name) {
  return NDManager(Ownership::Process().NewChild(name, device));
}

void NDManager::Attach(const NDArray& array) {
  array.CheckAlive("attach", "X");
  node_.Attach(array.buffer());
}

NDArray NDManager::Detach(const NDArray& array) {
  array.CheckAlive("detach", "X");
  // A copy is made before anything changes: there may be no memory for it.
  const NDArray copy = array.IsAttached() ? array.Detach() : NDArray();
  node_.Detach(array.buffer());
  return copy.is_defined() ? copy : array.Detach();
}

void NDManager::TempAttach(const NDArray& array) {
  array.CheckAlive("temp_attach", "X");
  node_.Lend(array.buffer());
}

void NDManager::AttachAll(std::initializer_list<NDResource> resources) {
  node_.AttachAll(HandlesOf("attach", resources));
}

void NDManager::TempAttachAll(std::initializer_list<NDResource> resources) {
  node_.LendAll(HandlesOf("temp_attach", resources));
}

NDArray NDManager::Ret(const NDArray& array) {
  array.CheckAlive("ret", "X");
  node_.Return(array.buffer());
  return array;
}

NDList NDManager::Ret(const NDList& list) {
  node_.ReturnAll(HandlesOf("ret", {list}));
  return list;
}

OwnerRef NDManager::ManagerOf(const NDArray& array) {
  array.CheckAlive("manager_of", "X");
  return OwnerRef(array.buffer() ? CurrentNodeOf(*array.buffer().get()) : 0);
}

bool NDManager::Manages(const NDArray& array) const {
  const OwnerRef owner = ManagerOf(array);
  return owner && owner == ref();
}

std::string NDManager::ToString() const {
  return absl::StrCat(is_open() ? ref().ToString() : absl::StrCat("owner [", name(), "]"),
                      parent_name().empty() ? "" : absl::StrCat(" of [", parent_name(), "]"),
                      is_open() ? ", open, " : ", closed, ", arrays(), " arrays, ", bytes(),
                      " bytes");
}

}  // namespace tidepool
