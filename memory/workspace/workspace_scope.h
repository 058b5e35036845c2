// Scopes: which workspace the calling thread allocates from, from here to the end of the block.
//
// A scope restores what was current before it, also when an exception passes. Scopes end in the
// reverse order of their beginning: Close() out of order throws; a destructor, which may not, puts
// the stack right and reports the mistake on stderr. Entering a workspace that is already open on
// this thread, innermost or further out, nests: the cycle goes on.
//
// Threads: a scope belongs to the thread that made it; the object may be moved and destroyed
// anywhere. Destroyed on another thread, which is a mistake and reported, it ends when its own
// thread next begins or ends a scope, or ends itself; until then that thread allocates as before.
// What is open when a thread ends is ended and reported; the objects left are empty then. A cycle
// that ends in these ways counts as failed, and what still lives in it is gone. Else a cycle has failed when more
// exceptions are in flight at its end than were at its beginning: a scope that a destructor opens during unwinding and
// that is kept for longer than that is taken to have ended well. Close() of a scope
// of another thread throws.
//
// Cost: tens of nanoseconds; no allocation but where a thread has more scopes open at a time than
// ever before (std::bad_alloc then leaves everything as it was).
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SCOPE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SCOPE_H_

#include "tidepool/memory/workspace/scope_token.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {

// One cycle of a workspace, or a nested part of it.
class [[nodiscard]] WorkspaceScope {
 public:
  // Throws kFailedPrecondition when the workspace is open on another thread.
  [[nodiscard]] explicit WorkspaceScope(Workspace& workspace);

  // Ends it before the end of the block. Throws kFailedPrecondition out of order, on another thread
  // and the second time, and changes nothing then.
  void Close() { token_.Close(); }

 private:
  internal::ScopeToken token_;
};

// Allocates from an outer workspace without a new cycle. It must be open on this thread.
class [[nodiscard]] BorrowScope {
 public:
  [[nodiscard]] explicit BorrowScope(Workspace& workspace);

  // As WorkspaceScope's.
  void Close() { token_.Close(); }

 private:
  internal::ScopeToken token_;
};

// Allocates from the heap inside a workspace.
class [[nodiscard]] ScopeOutOfWorkspaces {
 public:
  [[nodiscard]] ScopeOutOfWorkspaces();

  // As WorkspaceScope's.
  void Close() { token_.Close(); }

 private:
  internal::ScopeToken token_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SCOPE_H_
