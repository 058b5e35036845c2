#include "tidepool/memory/workspace/workspace_registry.h"

#include <cxxabi.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/workspace/thread_state.h"

// Of this binary or shared library (Itanium C++ ABI, section 3.3.5.3).
extern "C" {
extern void* __dso_handle;
}

namespace tidepool {
namespace {

thread_local constinit WorkspaceRegistry* registry_here = nullptr;

// What it frees may ask for the thread's registry: that is another one then, which ends after it.
void EndRegistryHere(void*) {
  const std::unique_ptr<WorkspaceRegistry> ended(std::exchange(registry_here, nullptr));
  current_thread_state.workspaces = 0;
}

}  // namespace

// An object that is local to the thread could not be made again for those that are destroyed after it.
WorkspaceRegistry& WorkspaceRegistry::ForCurrentThread() {
  if (registry_here == nullptr) {
    auto made = std::make_unique<WorkspaceRegistry>();
    abi::__cxa_thread_atexit(&EndRegistryHere, nullptr, &__dso_handle);
    registry_here = made.release();
  }
  return *registry_here;
}

Workspace* WorkspaceRegistry::Find(const std::string& id) {
  for (const auto& workspace : workspaces_) {
    if (workspace->id() == id) return workspace.get();
  }
  return nullptr;
}

Workspace& WorkspaceRegistry::Get(const std::string& id) {
  if (Workspace* workspace = Find(id)) return *workspace;
  ThrowNotFound(absl::StrCat("workspace registry: no workspace [", id, "] on this thread"));
}

Workspace& WorkspaceRegistry::Get(const std::string& id, const WorkspaceConfig& config,
                                  Device device) {
  if (Workspace* workspace = Find(id)) {
    if (workspace->device() != device) {
      ThrowInvalidArgument(absl::StrCat("workspace registry: [", id, "] exists on this thread on ",
                                        DeviceName(workspace->device()), ", expected ",
                                        DeviceName(device)));
    }
    if (workspace->config() == config) return *workspace;
    ThrowInvalidArgument(absl::StrCat("workspace registry: [", id,
                                      "] exists on this thread with another configuration"));
  }
  workspaces_.push_back(std::make_unique<Workspace>(id, config, device));
  current_thread_state.workspaces = static_cast<int64_t>(workspaces_.size());
  return *workspaces_.back();
}

Workspace* WorkspaceRegistry::Current() {
  const WorkspaceCore* place = CurrentPlace();
  if (place == nullptr) return nullptr;
  for (const auto& workspace : workspaces_) {
    if (workspace->core() == place) return workspace.get();
  }
  return nullptr;
}

std::vector<std::string> WorkspaceRegistry::DestroyAll() {
  std::vector<std::string> open;
  std::vector<std::unique_ptr<Workspace>> kept;
  for (auto& workspace : workspaces_) {
    if (workspace->is_open()) {
      open.push_back(workspace->id());
      kept.push_back(std::move(workspace));
    }
  }
  workspaces_ = std::move(kept);
  current_thread_state.workspaces = static_cast<int64_t>(workspaces_.size());
  return open;
}

std::string WorkspaceRegistry::Dump() const {
  std::string out;
  for (const auto& workspace : workspaces_) {
    const WorkspaceStats stats = workspace->stats();
    absl::StrAppend(&out, "[", OneLine(workspace->id()), "] ",
                    workspace->is_open() ? "open" : "closed", ", size ", stats.size_bytes,
                    ", cycles ", stats.cycles, ", last cycle ", workspace->bytes_last_cycle(),
                    " bytes, spills ", stats.spills, "\n");
  }
  return out;
}

}  // namespace tidepool
