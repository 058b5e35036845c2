// The stack of scopes of the calling thread: which workspace allocations go to right now.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_THREAD_STATE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_THREAD_STATE_H_

#include <cstdint>

namespace tidepool {

class WorkspaceCore;

// One scope. Lives inside the scope object; linked from the innermost outwards.
struct ScopeFrame {
  ScopeFrame* previous = nullptr;
  WorkspaceCore* core = nullptr;   // entered or borrowed; null when stepping out
  WorkspaceCore* place = nullptr;  // where allocations go; null: heap
  const void* thread = nullptr;    // null once ended
  int exceptions = 0;              // in flight when the scope began
};

struct ThreadState {
  ScopeFrame* top = nullptr;
  int64_t workspaces = 0;  // in this thread's registry
};

// Constant-initialised, so that reading it is one instruction.
extern thread_local constinit ThreadState current_thread_state;

inline const void* CurrentThreadToken() { return &current_thread_state; }

// Where an array made now on this thread lives; null: heap.
inline WorkspaceCore* CurrentPlace() {
  const ScopeFrame* top = current_thread_state.top;
  return top != nullptr ? top->place : nullptr;
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_THREAD_STATE_H_
