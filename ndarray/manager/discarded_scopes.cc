// Each scope as a temporary, which ends at once: an error where -Wunused-result is one. Compiled by
// discarded_scopes_test.sh, which expects an error at each line that says so.
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/manager/nd_manager.h"

using namespace tidepool;

void Discard(Workspace& workspace, RingWorkspace& ring, Ownership& owner, NDManager& manager) {
#ifdef DISCARD
  WorkspaceScope{workspace};  // error
  BorrowScope{workspace};     // error
  ScopeOutOfWorkspaces{};     // error
  RingSlotScope{ring};        // error
  OwnershipScope{owner};      // error
  HandlesOwnScope{};          // error
  CapScope{owner};            // error
  ManagerScope{manager};      // error
  ManagerCapScope{manager};   // error
#else
  const WorkspaceScope a(workspace);
  const BorrowScope b(workspace);
  const ScopeOutOfWorkspaces c;
  const RingSlotScope d(ring);
  const OwnershipScope e(owner);
  const HandlesOwnScope f;
  const CapScope g(owner);
  const ManagerScope h(manager);
  const ManagerCapScope i(manager);
#endif
}
