// The stack of scopes of the calling thread: which workspace allocations go to right now.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_THREAD_STATE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_THREAD_STATE_H_

#include <cstdint>

#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/scope_claim.h"

namespace tidepool {

class BufferOwner;
class WorkspaceCore;

// One scope, linked from the innermost outwards. It is the stack's and not the scope object's,
// which may go on any thread: only the stack's own thread reads `previous` or takes a frame out.
struct ScopeFrame {
  ScopeFrame* previous = nullptr;              // or the next free one
  WorkspaceCore* core = nullptr;               // entered or borrowed; null when stepping out
  WorkspaceCore* place = nullptr;              // where allocations go; null: heap
  const BufferOwner* needs_no_pins = nullptr;  // `core`, if its memory is the host's (pins.h)
  const void* thread = nullptr;                // whose stack it is on
  unsigned exceptions = 0;                     // in flight when the scope began
  bool begins_cycle = false;                   // of `core`; else it was open on this thread before
  // Told when the thread ends the scope in place of its object, if not null.
  void (*ended_by_thread)(void* context) = nullptr;
  void* context = nullptr;
  ScopeClaim<StdSync> claim;
};

struct ThreadState {
  ScopeFrame* top = nullptr;
  ScopeFrame* free = nullptr;            // as many as were ever open at a time
  const unsigned* exceptions = nullptr;  // how many are in flight; from the first frame on
  int64_t workspaces = 0;                // in this thread's registry
  bool ended = false;                    // the thread's stack is gone: nothing is kept from here on
};

// Constant-initialised, so that reading it is one instruction.
extern thread_local constinit ThreadState current_thread_state;

inline const void* CurrentThreadToken() { return &current_thread_state; }

// Where an array made now on this thread lives; null: heap.
inline WorkspaceCore* CurrentPlace() {
  const ScopeFrame* top = current_thread_state.top;
  return top != nullptr ? top->place : nullptr;
}

// Where allocations went when the cycle of the current workspace began: its parent. Null: the heap,
// as where no workspace is current or it was not entered by a scope.
WorkspaceCore* ParentOfCurrentPlace();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_THREAD_STATE_H_
