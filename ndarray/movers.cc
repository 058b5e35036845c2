// Every way out of a scope, in one file.
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

// The innermost scope of that workspace; null when it is not open on this thread. Its place is null
// when the workspace is switched off.
const ScopeFrame* FindOpen(const std::string& id) {
  for (ScopeFrame* frame = current_thread_state.top; frame != nullptr; frame = frame->previous) {
    if (frame->core != nullptr && frame->core->id == id) return frame;
  }
  return nullptr;
}

std::string OpenNames() {
  std::string names;
  for (ScopeFrame* frame = current_thread_state.top; frame != nullptr; frame = frame->previous) {
    if (frame->core == nullptr) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", frame->core->id);
  }
  return names.empty() ? "none" : names;
}

// The workspace entered before the current one.
WorkspaceCore* ParentPlace() {
  const ScopeFrame* top = current_thread_state.top;
  if (top == nullptr) return nullptr;
  for (const ScopeFrame* frame = top->previous; frame != nullptr; frame = frame->previous) {
    if (frame->place != top->place) return frame->place;
  }
  return nullptr;
}

NDArray Copied(const NDArray& from, BufferHandle buffer) {
  NDArray copy = buffer ? NDArray(std::move(buffer), from.shape(), from.dtype())
                        : NDArray(from.shape(), from.dtype());
  Dispatch(OpCode::kCopy, {&from}, {&copy});
  return copy;
}

NDArray CopiedTo(const NDArray& from, WorkspaceCore* core) {
  const size_t bytes = static_cast<size_t>(from.NumElements()) * DTypeBytes(from.dtype());
  if (bytes == 0) return NDArray(from.shape(), from.dtype());  // shares no buffer
  return Copied(from, core != nullptr ? BufferHandle(core->Allocate(bytes))
                                      : BufferHandle(NewHeapBuffer(
                                            bytes, 64, MemoryKind::kAllocated, from.device())));
}

bool LivesIn(const NDArray& array, const WorkspaceCore* core) {
  return array.buffer() && core != nullptr && array.buffer()->owner == core;
}

}  // namespace

NDArray NDArray::CopyTo(Place place) const {
  CheckAlive("copy", "X");
  NDArray copy(shape_, dtype_, place);
  Dispatch(OpCode::kCopy, {this}, {&copy});
  return copy;
}

NDArray NDArray::To(Device device) const {
  CheckAlive("to", "X");
  return !buffer_ || this->device() == device ? *this : CopyTo(Place::CurrentOn(device));
}

NDArray NDArray::Dup() const {
  CheckAlive("dup", "X");
  return CopyTo(ResultPlace("dup", {this}));
}

NDArray NDArray::Detach() const {
  CheckAlive("detach", "X");
  return IsAttached() ? CopiedTo(*this, nullptr) : *this;
}

NDArray NDArray::Leverage() const {
  CheckAlive("leverage", "X");
  if (!IsAttached()) return *this;
  WorkspaceCore* parent = ParentPlace();
  return LivesIn(*this, parent) ? *this : CopiedTo(*this, parent);
}

NDArray NDArray::LeverageTo(const std::string& id) const {
  CheckAlive("leverage_to", "X");
  if (!IsAttached()) return *this;
  const ScopeFrame* scope = FindOpen(id);
  if (scope == nullptr) {
    ThrowFailedPrecondition(absl::StrCat("Op [leverage_to]: workspace [", id,
                                         "] is not open on this thread; open: ", OpenNames()));
  }
  return LivesIn(*this, scope->place) ? *this : CopiedTo(*this, scope->place);
}

NDArray NDArray::LeverageOrDetach(const std::string& id) const {
  CheckAlive("leverage_or_detach", "X");
  if (!IsAttached()) return *this;
  const ScopeFrame* scope = FindOpen(id);
  WorkspaceCore* core = scope != nullptr ? scope->place : nullptr;
  return LivesIn(*this, core) ? *this : CopiedTo(*this, core);
}

NDArray NDArray::Migrate(bool detach_if_none) const {
  CheckAlive("migrate", "X");
  WorkspaceCore* core = CurrentPlace();
  if (core == nullptr) return detach_if_none ? Detach() : *this;
  return LivesIn(*this, core) ? *this : CopiedTo(*this, core);
}

}  // namespace tidepool
