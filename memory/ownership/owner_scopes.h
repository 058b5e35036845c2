// The stack of owners that are entered on a thread: what current_owner is, and was before.
//
// As the stack of workspace scopes (memory/workspace/workspace_scope.h): a frame is the stack's and a
// token only has hold of one. A token that ends before one that was pushed later leaves that one
// current, one that is destroyed on another thread ends when its own thread next begins or ends one, or
// ends itself; both are mistakes, which are reported (SetOwnershipReport).
//
// Cost: a few nanoseconds; memory is allocated only where a thread has more open at a time than ever
// before (std::bad_alloc then leaves everything as it was).
#ifndef TIDEPOOL_MEMORY_OWNERSHIP_OWNER_SCOPES_H_
#define TIDEPOOL_MEMORY_OWNERSHIP_OWNER_SCOPES_H_

#include "tidepool/memory/ownership/owner_node.h"

namespace tidepool::internal {

struct OwnerFrame;

class OwnerToken {
 public:
  OwnerToken() = default;
  ~OwnerToken() {
    if (frame_ != nullptr) End();
  }
  OwnerToken(const OwnerToken&) = delete;
  OwnerToken& operator=(const OwnerToken&) = delete;

  // Once. What current_owner is until this ends.
  void Push(CurrentOwner owner);

 private:
  void End() noexcept;

  OwnerFrame* frame_ = nullptr;
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_OWNERSHIP_OWNER_SCOPES_H_
