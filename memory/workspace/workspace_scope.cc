#include "tidepool/memory/workspace/workspace_scope.h"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pins.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

thread_local constinit ThreadState current_thread_state;

namespace {

std::string NameOf(const ScopeFrame& frame) {
  return frame.core != nullptr ? absl::StrCat("the scope of workspace [", frame.core->id, "]")
                               : std::string("a scope out of workspaces");
}

// A frame becomes the innermost one, or none is.
void SetTop(ThreadState& state, ScopeFrame* frame) noexcept {
  state.top = frame;
  internal::innermost_here = frame != nullptr ? frame->needs_no_pins : nullptr;
}

void Unlink(ScopeFrame* frame) noexcept {
  ThreadState& state = current_thread_state;
  if (state.top == frame) return SetTop(state, frame->previous);
  ScopeFrame* inner = state.top;
  while (inner->previous != frame) inner = inner->previous;
  inner->previous = frame->previous;
}

void Recycle(ScopeFrame* frame) noexcept {
  ThreadState& state = current_thread_state;
  if (state.ended) {
    delete frame;
    return;
  }
  frame->previous = state.free;
  state.free = frame;
}

// What is left to do for a frame that is off its stack, in place of its object.
class FrameEnd {
 public:
  explicit FrameEnd(const ScopeFrame& frame)
      : core_(frame.core), ended_(frame.ended_by_thread), context_(frame.context) {}
  void Run() const noexcept {
    if (core_ != nullptr) core_->LeaveFrame(/*failed=*/true);
    if (ended_ != nullptr) ended_(context_);
  }

 private:
  WorkspaceCore* core_;
  void (*ended_)(void*);
  void* context_;
};

// When the thread ends, so do the scopes that are open on it.
class StackEnd {
 public:
  ~StackEnd() {
    ThreadState& state = current_thread_state;
    internal::EndLeftScopes();
    while (ScopeFrame* frame = state.top) {
      SetTop(state, frame->previous);
      std::fprintf(stderr, "tidepool: %s outlives the thread it was opened on; it ends with that\n",
                   NameOf(*frame).c_str());
      const FrameEnd end(*frame);
      end.Run();
      if (!frame->claim.LeaveToObject()) {
        internal::scopes_left.fetch_sub(1, std::memory_order_relaxed);
        delete frame;
      }
    }
    state.ended = true;
    while (ScopeFrame* frame = state.free) {
      state.free = frame->previous;
      delete frame;
    }
  }
  void Touch() {}
};

// Where the language's runtime counts the exceptions in flight on this thread: the same place for as long as the
// thread lives, which the Itanium C++ ABI gives (section 2.2.2: a pointer, then the count).
// std::uncaught_exceptions() looks it up at each call, which were a tenth of the instructions of an empty cycle.
const unsigned* FindExceptionsHere() {
  return reinterpret_cast<const unsigned*>(reinterpret_cast<const char*>(abi::__cxa_get_globals()) +
                                           sizeof(void*));
}

// std::uncaught_exceptions(), on a thread that has had a frame.
unsigned ExceptionsHere() { return *current_thread_state.exceptions; }

[[gnu::noinline]] ScopeFrame* NewFrame() {
  thread_local StackEnd end;  // made with the thread's first frame
  end.Touch();
  current_thread_state.exceptions = FindExceptionsHere();
  return new ScopeFrame;
}

ScopeFrame* TakeFrame() {
  ThreadState& state = current_thread_state;
  ScopeFrame* const frame = state.free;
  if (frame == nullptr) [[unlikely]]
    return NewFrame();
  state.free = frame->previous;
  return frame;
}

// The thread has it open, but this is in a callback, which is called in the middle of what happens
// there.
bool IsHidden(const ScopeFrame* frame) noexcept {
  if (!internal::InCallback()) return false;
  const ScopeFrame* seen = current_thread_state.top;
  while (seen != nullptr && seen != frame) seen = seen->previous;
  return seen == nullptr;
}

// On a thread that is not the frame's, or no longer, or in a callback.
[[gnu::noinline]] void LeaveToItsThread(ScopeFrame* frame) noexcept {
  internal::scopes_left.fetch_add(1, std::memory_order_relaxed);
  if (frame->claim.LeaveToStack()) {
    // Not a word of what is in the frame: its thread may be ending it by now.
    std::fprintf(
        stderr,
        "tidepool: a scope is destroyed on a thread other than its own, or in a callback; it "
        "ends when its thread next begins or ends a scope\n");
  } else {
    internal::scopes_left.fetch_sub(1, std::memory_order_relaxed);
    delete frame;
  }
}

[[gnu::noinline]] void UnlinkFromBelow(ScopeFrame* frame) noexcept {
  std::fprintf(stderr, "tidepool: %s ends before %s, which was opened inside it\n",
               NameOf(*frame).c_str(), NameOf(*current_thread_state.top).c_str());
  Unlink(frame);
}

// In a callback: not what is open on the thread in no scope that the callback has opened itself.
void CheckMayEnter(const WorkspaceCore& core) {
  if (internal::in_memory_event) {
    ThrowFailedPrecondition(absl::StrCat(
        "workspace [", core.id, "]: a callback of memory events may not enter a workspace"));
  }
  if (!core.is_open_on(CurrentThreadToken())) return;
  const ScopeFrame* frame = current_thread_state.top;
  while (frame != nullptr && frame->core != &core) frame = frame->previous;
  if (frame != nullptr) return;
  ThrowFailedPrecondition(
      absl::StrCat("workspace [", core.id,
                   "]: a callback may not enter a workspace that its thread has open, "
                   "in the middle of whose cycle it is called"));
}

// A callback is called in the middle of a request: it must not make another one in the same
// workspace. So it sees no scope; one that it leaves behind stays the innermost.
void CallWithoutScopes(absl::FunctionRef<void()> call) {
  ThreadState& state = current_thread_state;
  ScopeFrame* const hidden = state.top;
  SetTop(state, nullptr);
  call();
  if (state.top == nullptr) return SetTop(state, hidden);
  ScopeFrame* outermost = state.top;
  while (outermost->previous != nullptr) outermost = outermost->previous;
  outermost->previous = hidden;
}

[[maybe_unused]] const bool hides_scopes = [] {
  internal::around_callbacks.store(&CallWithoutScopes, std::memory_order_release);
  return true;
}();

}  // namespace

WorkspaceCore* ParentOfCurrentPlace() {
  const ScopeFrame* frame = current_thread_state.top;
  if (frame == nullptr || frame->core == nullptr) return nullptr;
  const WorkspaceCore* current = frame->core;
  while (frame != nullptr && !(frame->core == current && frame->begins_cycle)) {
    frame = frame->previous;
  }
  return frame != nullptr && frame->previous != nullptr ? frame->previous->place : nullptr;
}

namespace internal {

std::atomic<int64_t> scopes_left{0};

void EndLeftScopesHere() noexcept {
  while (scopes_left.load(std::memory_order_acquire) != 0) {
    ScopeFrame* frame = current_thread_state.top;
    while (frame != nullptr && !frame->claim.object_is_gone()) frame = frame->previous;
    if (frame == nullptr) return;  // another thread's
    scopes_left.fetch_sub(1, std::memory_order_relaxed);
    std::fprintf(
        stderr,
        "tidepool: %s was destroyed on another thread, or in a callback; it ends on its own now\n",
        NameOf(*frame).c_str());
    Unlink(frame);
    const FrameEnd end(*frame);
    Recycle(frame);
    end.Run();
  }
}

void ScopeToken::Push(WorkspaceCore* core, WorkspaceCore* place) {
  if (InCallback() && core != nullptr) [[unlikely]] {
    CheckMayEnter(*core);
  }
  ScopeFrame* frame = TakeFrame();
  frame->begins_cycle = false;
  frame->exceptions = 0;
  if (core != nullptr) {
    try {
      frame->begins_cycle = core->EnterFrame(CurrentThreadToken());
      frame->exceptions = ExceptionsHere();
    } catch (...) {
      Recycle(frame);
      throw;
    }
  }
  frame->core = core;
  frame->place = place;
  frame->thread = CurrentThreadToken();
  frame->ended_by_thread = nullptr;
  frame->claim.Hold();
  frame->needs_no_pins = core != nullptr && core->memory_device() == Host() ? core : nullptr;
  frame->previous = current_thread_state.top;
  SetTop(current_thread_state, frame);
  frame_ = frame;
}

void ScopeToken::TellWhenEndedByThread(void (*ended)(void*), void* context) noexcept {
  frame_->ended_by_thread = ended;
  frame_->context = context;
}

void ScopeToken::CheckMayClose() const {
  if (frame_ == nullptr) {
    ThrowFailedPrecondition("scope: was closed before, or moved from");
  }
  if (frame_->claim.stack_is_gone()) {
    ThrowFailedPrecondition("scope: the thread it was opened on has ended, and the scope with it");
  }
  if (frame_->thread != CurrentThreadToken()) {
    ThrowFailedPrecondition("scope: was opened on another thread; only that one can close it");
  }
  EndLeftScopes();
  if (IsHidden(frame_)) {
    ThrowFailedPrecondition(absl::StrCat("scope: a callback may not close ", NameOf(*frame_),
                                         ", in which it is called"));
  }
  if (current_thread_state.top != frame_) {
    ThrowFailedPrecondition(absl::StrCat("scope: ", NameOf(*frame_), " is closed before ",
                                         NameOf(*current_thread_state.top),
                                         ", which was opened inside it"));
  }
}

void ScopeToken::Close() {
  CheckMayClose();
  End();
}

bool ScopeToken::End() noexcept {
  ScopeFrame* const frame = std::exchange(frame_, nullptr);
  ThreadState& state = current_thread_state;
  // A thread that has ended may have had the address of this one's state.
  if (frame->thread != &state || frame->claim.stack_is_gone() || IsHidden(frame)) [[unlikely]] {
    LeaveToItsThread(frame);
    return false;
  }
  EndLeftScopes();
  if (state.top == frame) [[likely]] {
    SetTop(state, frame->previous);
  } else {
    UnlinkFromBelow(frame);
  }
  WorkspaceCore* const core = frame->core;
  const unsigned exceptions = frame->exceptions;
  Recycle(frame);
  if (core != nullptr) core->LeaveFrame(ExceptionsHere() > exceptions);
  return true;
}

}  // namespace internal

WorkspaceScope::WorkspaceScope(Workspace& workspace) {
  internal::EndLeftScopes();
  WorkspaceCore* core = workspace.core();
  if (internal::InCallback()) CheckMayEnter(*core);
  if (core->is_open_on(CurrentThreadToken())) {
    const ScopeFrame* top = current_thread_state.top;  // null: held open without a scope
    const WorkspaceCore* inner = top != nullptr ? top->core : nullptr;
    if (inner != nullptr && inner != core)
      core->detector().OnReentry(core->generation(), inner->id);
  }
  token_.Push(core, core->passes_through() ? nullptr : core);
}

BorrowScope::BorrowScope(Workspace& workspace) {
  internal::EndLeftScopes();
  WorkspaceCore* core = workspace.core();
  if (!core->is_open_on(CurrentThreadToken())) {
    ThrowFailedPrecondition(absl::StrCat("borrow: workspace [", core->id,
                                         "] is not open on this thread; enter it first"));
  }
  token_.Push(core, core->passes_through() ? nullptr : core);
}

Buffer* AllocateOnHeapHere(size_t bytes) {
  const ScopeFrame* top = current_thread_state.top;
  if (top == nullptr || top->core == nullptr) return NewHeapBuffer(bytes);
  return NewHeapBuffer(bytes, std::max(kHeapAlignment, top->core->alignment()),
                       MemoryKind::kAllocated, top->core->memory_device());
}

ScopeOutOfWorkspaces::ScopeOutOfWorkspaces() {
  internal::EndLeftScopes();
  token_.Push(nullptr, nullptr);
}

}  // namespace tidepool
