// The workspaces of a thread by name. Two threads that ask for one name get two workspaces, as a
// workspace is open on one thread at a time and names in code that all of them run must not make them
// meet; all of a thread's are freed when it ends. What threads share, or outlives them, is made as a
// Workspace and passed on.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_REGISTRY_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_REGISTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {

class WorkspaceRegistry {
 public:
  static WorkspaceRegistry& ForCurrentThread();  // ends with the thread

  // The workspace of that name, made on `device` if there is none. Asking for an existing name with
  // another configuration or device throws kInvalidArgument.
  Workspace& Get(const std::string& id, const WorkspaceConfig& config, Device device = Host());
  // As above with the configuration it was made with; throws kNotFound when there is none.
  Workspace& Get(const std::string& id);
  // Null when there is none.
  Workspace* Find(const std::string& id);
  // The workspace allocations on this thread go to now, if it is one of this registry's; else null.
  Workspace* Current();
  // Frees every closed workspace; the names of those that were still open are returned, and kept.
  std::vector<std::string> DestroyAll();
  // One line per workspace: name, state, sizes.
  std::string Dump() const;

  // How many workspaces there are.
  size_t size() const { return workspaces_.size(); }

 private:
  std::vector<std::unique_ptr<Workspace>> workspaces_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_REGISTRY_H_
