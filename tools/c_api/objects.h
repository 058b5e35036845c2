// What handles of arrays, managers and workspaces name, and scopes that are open on a thread.
#ifndef TIDEPOOL_TOOLS_C_API_OBJECTS_H_
#define TIDEPOOL_TOOLS_C_API_OBJECTS_H_

#include <string>

#include "tidepool/memory/pins.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/tools/c_api/handle_table.h"
#include "tidepool/tools/c_api/tidepool.h"

namespace tidepool::c_api {

using ArrayTable = HandleTable<NDArray, HandleKind::kArray>;
using ManagerTable = HandleTable<NDManager, HandleKind::kManager>;
using WorkspaceTable = HandleTable<Workspace, HandleKind::kWorkspace>;

// Never destroyed: threads may go on while the program ends.
extern ArrayTable arrays;
extern ManagerTable managers;
extern WorkspaceTable workspaces;

inline tidepool_array NewArrayHandle(NDArray array) {
  return static_cast<tidepool_array>(arrays.Add(std::move(array)));
}

// Who closes the array, or its manager, on another thread meanwhile leaves its bytes to this call. Before it is looked at
// whether it is alive. A cycle's end waits for nobody (memory/pins.h).
class BytesInUse {
 public:
  explicit BytesInUse(const NDArray& array) {
    pins_.Pin(array.buffer().get());
    pins_.Publish();
  }

 private:
  PinScope pins_;
};

// Cycles of workspaces and entered managers, in the order of their beginning on this thread. What is open when the thread ends
// ends then.
void EnterWorkspace(WorkspaceTable::Pinned workspace, const void* handle);
// Throw kInvalidArgument for what is no handle of that kind, kFailedPrecondition unless it is the innermost; nothing has
// changed then.
void LeaveWorkspace(const char* function, const void* handle, bool has_failed);
void EnterManager(ManagerTable::Pinned manager, const void* handle);
void LeaveManager(const char* function, const void* handle);

// The members of WorkspaceStats.
std::string WorkspaceStatsJson(const Workspace& workspace);
// Throws kInvalidArgument for what is no object of members of WorkspaceConfig, naming those there are.
WorkspaceConfig WorkspaceConfigOf(const char* function, const char* json);

}  // namespace tidepool::c_api

#endif  // TIDEPOOL_TOOLS_C_API_OBJECTS_H_
