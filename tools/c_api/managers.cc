// Managers of the C API.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/memory/ownership/owner_node.h"
#include "tidepool/memory/ownership/ownership_snapshot.h"
#include "tidepool/tools/c_api/calls.h"
#include "tidepool/tools/c_api/objects.h"

namespace tidepool::c_api {

constinit ManagerTable managers;

namespace {

std::string ReportOf(const OwnershipSnapshot& snapshot) {
  JsonWriter json;
  json.BeginArray();
  for (const OwnerStats& owner : snapshot) {
    json.BeginObject();
    json.Member("path", owner.path);
    json.Member("name", owner.name);
    json.Member("depth", owner.depth);
    json.Member("device", DeviceName(owner.device));
    json.Member("place", owner.place);
    json.Member("arrays", owner.arrays);
    json.Member("bytes", owner.bytes);
    json.Member("peak_bytes", owner.peak_bytes);
    json.Member("subtree_arrays", owner.subtree_arrays);
    json.Member("subtree_bytes", owner.subtree_bytes);
    json.Member("loans", owner.loans);
    json.Member("budget_bytes", owner.budget_bytes);
    json.EndObject();
  }
  json.EndArray();
  return std::move(json).Take();
}

// Whether it owns the array or has borrowed it. Empty arrays are nobody's, and anybody's to return.
bool HasOrBorrows(const NDManager& manager, const NDArray& array) {
  const Buffer* const buffer = array.buffer().get();
  if (buffer == nullptr) return true;
  const uint64_t ref = manager.ref().bits();
  const OwnerNode* const node = NodeOf(ref);
  return buffer->link.node.Get() == ref || (node != nullptr && internal::IsLentTo(*buffer, *node));
}

void Return(const char* function, NDManager& manager, const NDArray& array) {
  array.CheckAlive(function, "array");
  // One that is closed says so itself.
  if (manager.is_open() && !HasOrBorrows(manager, array)) {
    ThrowFailedPrecondition(absl::StrCat(function, ": the array of shape ",
                                         array.shape().ToString(), " is not manager [",
                                         manager.name(), "]'s, nor lent to it"));
  }
  manager.Ret(array);
}

}  // namespace
}  // namespace tidepool::c_api

using namespace tidepool;         // NOLINT: the functions of C have no namespace
using namespace tidepool::c_api;  // NOLINT

tidepool_status tidepool_manager_new(tidepool_manager parent, const char* name, const char* device,
                                     tidepool_manager* manager) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "manager", manager);
    CheckGiven(function, "name", name);
    if (parent == nullptr) {
      *manager = static_cast<tidepool_manager>(
          managers.Add(NDManager::NewBaseManager(DeviceOfText(device), name)));
      return;
    }
    const auto pinned = managers.Pin(function, parent);
    *manager = static_cast<tidepool_manager>(
        managers.Add(device == nullptr ? pinned->NewSubManager(name)
                                       : pinned->NewSubManager(name, DeviceNamed(device))));
  });
}

tidepool_status tidepool_manager_release(tidepool_manager manager) {
  return Call(__func__, [&](const char* function) { managers.Release(function, manager); });
}

tidepool_status tidepool_manager_close(tidepool_manager manager) {
  return Call(__func__, [&](const char* function) { managers.Pin(function, manager)->Close(); });
}

tidepool_status tidepool_manager_attach(tidepool_manager manager, tidepool_array array) {
  return Call(__func__, [&](const char* function) {
    managers.Pin(function, manager)->Attach(*arrays.Pin(function, array));
  });
}

tidepool_status tidepool_manager_lend(tidepool_manager manager, tidepool_array array) {
  return Call(__func__, [&](const char* function) {
    managers.Pin(function, manager)->TempAttach(*arrays.Pin(function, array));
  });
}

tidepool_status tidepool_manager_return(tidepool_manager manager, tidepool_array array) {
  return Call(__func__, [&](const char* function) {
    Return(function, *managers.Pin(function, manager), *arrays.Pin(function, array));
  });
}

tidepool_status tidepool_manager_enter(tidepool_manager manager) {
  return Call(__func__, [&](const char* function) {
    EnterManager(managers.Pin(function, manager), manager);
  });
}

tidepool_status tidepool_manager_leave(tidepool_manager manager) {
  return Call(__func__, [&](const char* function) { LeaveManager(function, manager); });
}

tidepool_status tidepool_manager_set_budget(tidepool_manager manager, int64_t bytes) {
  return Call(__func__,
              [&](const char* function) { managers.Pin(function, manager)->SetBudget(bytes); });
}

tidepool_status tidepool_manager_get_info(tidepool_manager manager, tidepool_manager_info* info) {
  return Call(__func__, [&](const char* function) {
    const auto pinned = managers.Pin(function, manager);
    CheckInfo(function, info, kFirstManagerInfoBytes);
    tidepool_manager_info found = {};
    found.is_open = pinned->is_open();
    if (found.is_open != 0) {
      found.arrays = pinned->arrays();
      found.bytes = pinned->bytes();
      found.loans = pinned->loans();
    }
    GiveInfo(found, info);
  });
}

tidepool_status tidepool_manager_report(tidepool_manager manager, char** json) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "json", json);
    *json = NewText(ReportOf(managers.Pin(function, manager)->Snapshot()));
  });
}
