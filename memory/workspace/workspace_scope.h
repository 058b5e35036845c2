// Scopes: which workspace the calling thread allocates from, from here to the end of the block.
//
// A scope restores what was current before it, also when an exception passes. Scopes end in the
// reverse order of their beginning: Close() out of order throws; a destructor, which may not, puts
// the stack right and reports the mistake on stderr. Entering a workspace that is already open on
// this thread, innermost or further out, nests: the cycle goes on. All scopes belong to the thread
// that made them. Cost: tens of nanoseconds, no allocation.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SCOPE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SCOPE_H_

#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {

namespace internal {

// What the three kinds of scope share: a place on the thread's stack.
class ScopeToken {
 public:
  ScopeToken() = default;
  ScopeToken(ScopeToken&& other) noexcept {
    if (other.is_active()) MoveFrom(other);
  }
  ScopeToken& operator=(ScopeToken&& other) noexcept;
  ~ScopeToken() { Reset(); }

  // Ends it if it has not ended yet.
  void Reset() noexcept {
    if (is_active()) End();
  }

  void Push(WorkspaceCore* core, WorkspaceCore* place);
  // Throws kFailedPrecondition when the scope has ended already, is not the innermost, or belongs
  // to another thread; the stack is unchanged then.
  void Close();

 private:
  bool is_active() const { return frame_.thread != nullptr; }
  void MoveFrom(ScopeToken& other) noexcept;
  void End() noexcept;
  void Unlink() noexcept;

  ScopeFrame frame_;
};

}  // namespace internal

// One cycle of a workspace, or a nested part of it.
class [[nodiscard]] WorkspaceScope {
 public:
  // Throws kFailedPrecondition when the workspace is open on another thread.
  explicit WorkspaceScope(Workspace& workspace);
  void Close() { token_.Close(); }

 private:
  internal::ScopeToken token_;
};

// Allocates from an outer workspace without a new cycle. It must be open on this thread.
class [[nodiscard]] BorrowScope {
 public:
  explicit BorrowScope(Workspace& workspace);
  void Close() { token_.Close(); }

 private:
  internal::ScopeToken token_;
};

// Allocates from the heap inside a workspace.
class [[nodiscard]] ScopeOutOfWorkspaces {
 public:
  ScopeOutOfWorkspaces();
  void Close() { token_.Close(); }

 private:
  internal::ScopeToken token_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SCOPE_H_
