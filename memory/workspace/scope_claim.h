// ScopeClaim: who lets go of a scope first, the stack of the thread that opened it or the scope
// object, wherever that is destroyed. Who lets go second has the scope's frame to itself.
//
// Threads: the stack's functions are called by the thread that opened the scope, the object's by
// any one thread at a time. Cost: a load, and an exchange where a scope does not end on its own
// thread.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_SCOPE_CLAIM_H_
#define TIDEPOOL_MEMORY_WORKSPACE_SCOPE_CLAIM_H_

#include <atomic>
#include <cstdint>

namespace tidepool {

template <typename Sync>
class ScopeClaim {
 public:
  // Before anybody else knows the frame.
  void Hold() noexcept { state_.store(kBoth, std::memory_order_relaxed); }

  // The object goes, not on the stack's thread: the stack ends the scope and has the frame. False:
  // the stack went before, and the frame is the caller's.
  bool LeaveToStack() noexcept {
    return state_.exchange(kObjectGone, std::memory_order_acq_rel) == kBoth;
  }
  // The stack goes and has ended the scope: the object has the frame. False: the object went
  // before, and the frame is the caller's.
  bool LeaveToObject() noexcept {
    return state_.exchange(kStackGone, std::memory_order_acq_rel) == kBoth;
  }

  bool object_is_gone() const noexcept {
    return state_.load(std::memory_order_acquire) == kObjectGone;
  }
  bool stack_is_gone() const noexcept {
    return state_.load(std::memory_order_acquire) == kStackGone;
  }

 private:
  static constexpr uint8_t kBoth = 0, kObjectGone = 1, kStackGone = 2;
  typename Sync::template Atomic<uint8_t> state_{kBoth};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_SCOPE_CLAIM_H_
