#include "tidepool/memory/ownership/owner_scopes.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/scope_claim.h"
#include "tidepool/memory/workspace/thread_state.h"

namespace tidepool::internal {

struct OwnerFrame {
  OwnerFrame* previous = nullptr;  // or the next free one
  CurrentOwner owner;
  const void* thread = nullptr;  // whose stack it is on
  ScopeClaim<StdSync> claim;
};

namespace {

struct OwnerStack {
  OwnerFrame* top = nullptr;
  OwnerFrame* free = nullptr;  // as many as were ever open at a time
  bool ended = false;          // nothing is kept from here on
};
thread_local constinit OwnerStack stack;

// Of all threads, whose tokens were destroyed on others, and that have not ended yet.
constinit std::atomic<int64_t> left{0};

std::string NameOf(const CurrentOwner& owner) {
  return owner.ref == kHandlesOwn ? "no owner" : DescribeNode(owner.ref);
}

void SetCurrent() noexcept {
  current_owner = stack.top != nullptr ? stack.top->owner : CurrentOwner{};
}

void Unlink(OwnerFrame* frame) noexcept {
  OwnerFrame** link = &stack.top;
  while (*link != frame) link = &(*link)->previous;
  *link = frame->previous;
}

void Recycle(OwnerFrame* frame) noexcept {
  if (stack.ended) {
    delete frame;
    return;
  }
  frame->previous = stack.free;
  stack.free = frame;
}

// Those of this thread whose tokens are gone.
void EndLeft() noexcept {
  while (left.load(std::memory_order_acquire) != 0) {
    OwnerFrame* frame = stack.top;
    while (frame != nullptr && !frame->claim.object_is_gone()) frame = frame->previous;
    if (frame == nullptr) return;  // another thread's
    left.fetch_sub(1, std::memory_order_relaxed);
    Unlink(frame);
    Recycle(frame);
    SetCurrent();
  }
}

class StackEnd {
 public:
  ~StackEnd() {
    EndLeft();
    while (OwnerFrame* frame = stack.top) {
      stack.top = frame->previous;
      Report([frame] {
        return absl::StrCat("the scope of ", NameOf(frame->owner),
                            " outlives the thread it was entered on; it ends with that");
      });
      if (!frame->claim.LeaveToObject()) {
        left.fetch_sub(1, std::memory_order_relaxed);
        delete frame;
      }
    }
    SetCurrent();
    stack.ended = true;
    while (OwnerFrame* frame = stack.free) {
      stack.free = frame->previous;
      delete frame;
    }
  }
  void Touch() {}
};

[[gnu::noinline]] OwnerFrame* NewFrame() {
  thread_local StackEnd end;  // made with the thread's first frame
  end.Touch();
  return new OwnerFrame;
}

// On a thread that is not the frame's, or no longer.
[[gnu::noinline]] void LeaveToItsThread(OwnerFrame* frame) noexcept {
  left.fetch_add(1, std::memory_order_relaxed);
  if (frame->claim.LeaveToStack()) {
    // Not a word of what is in the frame: its thread may be ending it by now.
    Report([] {
      return std::string(
          "the scope of an owner is destroyed on a thread other than its own; it ends "
          "when that one next begins or ends one");
    });
  } else {
    left.fetch_sub(1, std::memory_order_relaxed);
    delete frame;
  }
}

[[gnu::noinline]] void UnlinkFromBelow(OwnerFrame* frame) noexcept {
  const CurrentOwner inner = stack.top->owner;
  Unlink(frame);
  Report([&] {
    return absl::StrCat("the scope of ", NameOf(frame->owner), " ends before that of ",
                        NameOf(inner), ", which was entered inside it");
  });
}

}  // namespace

void OwnerToken::Push(CurrentOwner owner) {
  EndLeft();
  OwnerFrame* frame = stack.free;
  if (frame != nullptr) {
    stack.free = frame->previous;
  } else {
    frame = NewFrame();
  }
  frame->owner = owner;
  frame->thread = CurrentThreadToken();
  frame->claim.Hold();
  frame->previous = stack.top;
  stack.top = frame;
  frame_ = frame;
  current_owner = owner;
}

void OwnerToken::End() noexcept {
  OwnerFrame* const frame = std::exchange(frame_, nullptr);
  // A thread that has ended may have had the address of this one's state.
  if (frame->thread != CurrentThreadToken() || frame->claim.stack_is_gone()) [[unlikely]] {
    return LeaveToItsThread(frame);
  }
  EndLeft();
  if (stack.top == frame) [[likely]] {
    stack.top = frame->previous;
  } else {
    UnlinkFromBelow(frame);
  }
  SetCurrent();
  Recycle(frame);
}

}  // namespace tidepool::internal
