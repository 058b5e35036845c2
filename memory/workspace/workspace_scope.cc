#include "tidepool/memory/workspace/workspace_scope.h"

#include <cstdio>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

thread_local constinit ThreadState current_thread_state;

namespace {

std::string NameOf(const ScopeFrame& frame) {
  return frame.core != nullptr ? absl::StrCat("the scope of workspace [", frame.core->id, "]")
                               : std::string("a scope out of workspaces");
}

}  // namespace

namespace internal {

void ScopeToken::Push(WorkspaceCore* core, WorkspaceCore* place) {
  if (core != nullptr) core->EnterFrame(CurrentThreadToken());
  frame_.core = core;
  frame_.place = place;
  frame_.thread = CurrentThreadToken();
  frame_.exceptions = std::uncaught_exceptions();
  frame_.previous = current_thread_state.top;
  current_thread_state.top = &frame_;
}

void ScopeToken::Unlink() noexcept {
  ScopeFrame** link = &current_thread_state.top;
  while (*link != nullptr && *link != &frame_) link = &(*link)->previous;
  if (*link != nullptr) *link = frame_.previous;
}

void ScopeToken::Close() {
  if (frame_.thread == nullptr) {
    ThrowFailedPrecondition(absl::StrCat("scope: ", NameOf(frame_), " was closed before"));
  }
  if (frame_.thread != CurrentThreadToken()) {
    ThrowFailedPrecondition(
        absl::StrCat("scope: ", NameOf(frame_), " was opened on another thread"));
  }
  if (current_thread_state.top != &frame_) {
    ThrowFailedPrecondition(absl::StrCat("scope: ", NameOf(frame_), " is closed before ",
                                         NameOf(*current_thread_state.top),
                                         ", which was opened inside it"));
  }
  End();
}

void ScopeToken::End() noexcept {
  if (frame_.thread != CurrentThreadToken()) {
    std::fprintf(stderr, "tidepool: %s ends on a thread other than its own; it stays open there\n",
                 NameOf(frame_).c_str());
    return;
  }
  if (current_thread_state.top == &frame_) {
    current_thread_state.top = frame_.previous;
  } else {
    std::fprintf(stderr, "tidepool: %s ends before %s, which was opened inside it\n",
                 NameOf(frame_).c_str(), NameOf(*current_thread_state.top).c_str());
    Unlink();
  }
  frame_.thread = nullptr;
  if (frame_.core != nullptr) {
    frame_.core->LeaveFrame(std::uncaught_exceptions() > frame_.exceptions);
  }
}

void ScopeToken::MoveFrom(ScopeToken& other) noexcept {
  frame_ = other.frame_;
  other.frame_ = ScopeFrame{};
  ScopeFrame** link = &current_thread_state.top;
  while (*link != nullptr && *link != &other.frame_) link = &(*link)->previous;
  if (*link != nullptr) *link = &frame_;
}

ScopeToken& ScopeToken::operator=(ScopeToken&& other) noexcept {
  if (this != &other) {
    Reset();
    if (other.is_active()) MoveFrom(other);
  }
  return *this;
}

}  // namespace internal

WorkspaceScope::WorkspaceScope(Workspace& workspace) {
  WorkspaceCore* core = workspace.core();
  if (core->is_open_on(CurrentThreadToken())) {
    const ScopeFrame* top = current_thread_state.top;  // null: held open without a scope
    const WorkspaceCore* inner = top != nullptr ? top->core : nullptr;
    if (inner != nullptr && inner != core) core->detector().OnReentry(core->generation(), inner->id);
  }
  token_.Push(core, core->passes_through() ? nullptr : core);
}

BorrowScope::BorrowScope(Workspace& workspace) {
  WorkspaceCore* core = workspace.core();
  if (!core->is_open_on(CurrentThreadToken())) {
    ThrowFailedPrecondition(absl::StrCat("borrow: workspace [", core->id,
                                         "] is not open on this thread; enter it first"));
  }
  token_.Push(core, core->passes_through() ? nullptr : core);
}

Buffer* AllocateOnHeapHere(size_t bytes) {
  const ScopeFrame* top = current_thread_state.top;
  const bool switched_off = top != nullptr && top->core != nullptr;
  return NewHeapBuffer(bytes, 64, MemoryKind::kAllocated,
                       switched_off ? top->core->memory_device() : Host());
}

ScopeOutOfWorkspaces::ScopeOutOfWorkspaces() { token_.Push(nullptr, nullptr); }

}  // namespace tidepool
