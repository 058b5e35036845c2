// WorkspaceRef: the name of a workspace, for what may outlive it: places and managers keep one.
//
// A number that no other workspace of the process ever has, and no pointer: whatever lies where the
// workspace was, a reference finds the workspace itself or nothing. It keeps nothing alive.
//
// Threads: any; a value. Cost: a comparison for each scope that is open further in on the calling thread.
// Only what is not found there is looked up, under a lock: for errors, dumps, and workspaces that are open
// without a scope (a captured step's).
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_REF_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_REF_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "tidepool/memory/device.h"

namespace tidepool {

class WorkspaceCore;

class WorkspaceRef {
 public:
  WorkspaceRef() = default;  // of none, which is never open
  explicit WorkspaceRef(const WorkspaceCore& core);

  // The workspace where the calling thread has it open, which keeps it until its scopes end; else null.
  // Inline in workspace_core.h.
  WorkspaceCore* OpenHere() const;
  // "workspace [id] is not open on this thread; enter it first", or "... was destroyed; ...", with `who`
  // in front: kFailedPrecondition.
  [[noreturn]] void ThrowNotOpenHere(std::string_view who) const;

  // Of a moment ago, where other threads may destroy it.
  bool is_alive() const;
  // Whether its memory is on another device; false when it is gone.
  bool IsOnAnotherDevice(Device device) const;
  // "steps", "steps (destroyed)". The ids of workspaces long gone are forgotten: "(destroyed)".
  std::string Describe() const;

  friend bool operator==(WorkspaceRef, WorkspaceRef) = default;

 private:
  WorkspaceCore* FindOpenHere() const;

  uint64_t number_ = 0;
};

namespace internal {

// A workspace's entry in the table of those there are, from which references find it.
class WorkspaceEntry {
 public:
  explicit WorkspaceEntry(WorkspaceCore* core);  // throws std::bad_alloc
  ~WorkspaceEntry() { Remove(); }
  WorkspaceEntry(const WorkspaceEntry&) = delete;
  WorkspaceEntry& operator=(const WorkspaceEntry&) = delete;

  uint64_t number() const { return number_; }
  // It is gone for whoever looks from here on; its id is remembered for a while. Idempotent.
  void Remove() noexcept;

 private:
  const uint64_t number_;
};

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_REF_H_
