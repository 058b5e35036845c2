// Every way out of a scope, in one file. What a mover gives is its handles', whose the source may
// be: else a manager that closes would end it early, in some modes of a workspace and not in
// others, as arrays of a workspace that is switched off are on the heap, where nothing needs to
// move.
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/owner_node.h"
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

NDArray Copied(const NDArray& from, BufferHandle buffer) {
  NDArray copy(std::move(buffer), from.shape(), from.dtype());
  Dispatch(OpCode::kCopy, {&from}, {&copy});
  return copy;
}

NDArray CopiedTo(const NDArray& from, WorkspaceCore* core) {
  const size_t bytes = static_cast<size_t>(from.NumElements()) * DTypeBytes(from.dtype());
  if (bytes == 0) {  // shares no buffer
    return NDArray(from.shape(), from.dtype(),
                   Place::On(core != nullptr ? core->memory_device() : from.device()));
  }
  return Copied(from, core != nullptr ? BufferHandle(core->Allocate(bytes))
                                      : BufferHandle(NewHeapBuffer(
                                            bytes, 64, MemoryKind::kAllocated, from.device())));
}

bool IsItsHandles(const NDArray& array) {
  const Buffer* buffer = array.buffer().get();
  return buffer == nullptr || buffer->care.load(std::memory_order_relaxed) == 0 ||
         CurrentNodeOf(*buffer) == 0;
}

// In that workspace, or on the heap where `core` is null; the array itself if it is there and its
// handles'.
NDArray MovedTo(const NDArray& from, WorkspaceCore* core) {
  const bool is_there =
      core != nullptr ? from.buffer() && from.buffer()->owner == core : !from.IsAttached();
  return is_there && IsItsHandles(from) ? from : CopiedTo(from, core);
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
  CheckDevice("Op [to]", device);
  return this->device() == device ? *this : CopyTo(Place::CurrentOn(device));
}

NDArray NDArray::Dup() const {
  CheckAlive("dup", "X");
  return CopyTo(ResultPlace("dup", {this}));
}

NDArray NDArray::Detach() const {
  CheckAlive("detach", "X");
  return MovedTo(*this, nullptr);
}

NDArray NDArray::Leverage() const {
  CheckAlive("leverage", "X");
  return MovedTo(*this, IsAttached() ? ParentOfCurrentPlace() : nullptr);
}

NDArray NDArray::LeverageTo(const std::string& id) const {
  CheckAlive("leverage_to", "X");
  if (!IsAttached()) return MovedTo(*this, nullptr);
  const ScopeFrame* scope = FindOpen(id);
  if (scope == nullptr) {
    ThrowFailedPrecondition(absl::StrCat("Op [leverage_to]: workspace [", id,
                                         "] is not open on this thread; open: ", OpenNames()));
  }
  return MovedTo(*this, scope->place);
}

NDArray NDArray::LeverageOrDetach(const std::string& id) const {
  CheckAlive("leverage_or_detach", "X");
  const ScopeFrame* scope = IsAttached() ? FindOpen(id) : nullptr;
  return MovedTo(*this, scope != nullptr ? scope->place : nullptr);
}

NDArray NDArray::Migrate(bool detach_if_none) const {
  CheckAlive("migrate", "X");
  const ScopeFrame* top = current_thread_state.top;
  if (top == nullptr || top->core == nullptr) return detach_if_none ? Detach() : *this;
  return MovedTo(*this, top->place);
}

}  // namespace tidepool
