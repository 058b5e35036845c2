// ScopeToken: a scope's hold on its frame of the thread's stack, for what is a scope by itself
// (workspace_scope.h, whose rules of threads and order hold here) and for what keeps one among other things.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_SCOPE_TOKEN_H_
#define TIDEPOOL_MEMORY_WORKSPACE_SCOPE_TOKEN_H_

#include <atomic>
#include <cstdint>
#include <utility>

#include "tidepool/memory/workspace/thread_state.h"

namespace tidepool::internal {

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
  bool is_held() const { return frame_ != nullptr; }
  // Its thread ended it and has gone.
  bool ended_with_thread() const { return frame_ != nullptr && frame_->claim.stack_is_gone(); }

 private:
  bool End() noexcept;

  ScopeFrame* frame_ = nullptr;  // null: ended
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_WORKSPACE_SCOPE_TOKEN_H_
