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
// that ends in these ways counts as failed, and what still lives in it is gone. Close() of a scope
// of another thread throws.
//
// Cost: tens of nanoseconds; no allocation but where a thread has more scopes open at a time than
// ever before (std::bad_alloc then leaves everything as it was).
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SCOPE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SCOPE_H_

#include <atomic>
#include <cstdint>
#include <utility>

#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {

namespace internal {

// Scopes of all threads whose objects were destroyed on others, and that have not ended yet.
extern std::atomic<int64_t> scopes_left;
void EndLeftScopesHere() noexcept;
// Ends the scopes of this thread whose objects were destroyed on other threads.
inline void EndLeftScopes() noexcept {
  if (scopes_left.load(std::memory_order_acquire) != 0) EndLeftScopesHere();
}

// What the three kinds of scope share: their hold on a frame of the thread's stack.
class ScopeToken {
 public:
  ScopeToken() = default;
  ScopeToken(ScopeToken&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  ScopeToken& operator=(ScopeToken&& other) noexcept {
    if (this != &other) {
      Reset();
      frame_ = std::exchange(other.frame_, nullptr);
    }
    return *this;
  }
  ~ScopeToken() { Reset(); }

  // Ends it if it has not ended yet. True when it ended here; false also when it is left to its
  // thread.
  bool Reset() noexcept { return frame_ != nullptr && End(); }

  void Push(WorkspaceCore* core, WorkspaceCore* place);
  // `ended(context)` runs when the scope's thread ends it in place of this.
  void TellWhenEndedByThread(void (*ended)(void*), void* context) noexcept;
  // Throws kFailedPrecondition when the scope has ended already, is not the innermost, or belongs
  // to another thread; the stack is unchanged then.
  void Close();
  void CheckMayClose() const;
  // Close() after CheckMayClose().
  void CloseChecked() noexcept { End(); }
  // Its thread ended it and has gone.
  bool ended_with_thread() const { return frame_ != nullptr && frame_->claim.stack_is_gone(); }

 private:
  bool End() noexcept;

  ScopeFrame* frame_ = nullptr;  // null: ended
};

}  // namespace internal

// One cycle of a workspace, or a nested part of it.
class [[nodiscard]] WorkspaceScope {
 public:
  // Throws kFailedPrecondition when the workspace is open on another thread.
  [[nodiscard]] explicit WorkspaceScope(Workspace& workspace);
  void Close() { token_.Close(); }

 private:
  internal::ScopeToken token_;
};

// Allocates from an outer workspace without a new cycle. It must be open on this thread.
class [[nodiscard]] BorrowScope {
 public:
  [[nodiscard]] explicit BorrowScope(Workspace& workspace);
  void Close() { token_.Close(); }

 private:
  internal::ScopeToken token_;
};

// Allocates from the heap inside a workspace.
class [[nodiscard]] ScopeOutOfWorkspaces {
 public:
  [[nodiscard]] ScopeOutOfWorkspaces();
  void Close() { token_.Close(); }

 private:
  internal::ScopeToken token_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_SCOPE_H_
