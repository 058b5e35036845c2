// Fibers: stacks that one thread switches between, a few nanoseconds each (swapcontext would make
// two system calls).
//
// AddressSanitizer and ThreadSanitizer are told of each switch. Exceptions may be thrown and caught
// within a fiber, also across switches; none may leave its entry function. Signal masks and the
// floating-point control words are not switched.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_FIBER_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_FIBER_H_

#include <cstddef>
#include <cstdint>

namespace tidepool::explorer::internal {

class Fiber {
 public:
  // The stack that the calling thread runs on.
  Fiber();
  // A stack of its own, with pages below it that may not be touched. The first switch to it calls
  // entry(argument), which must never return.
  Fiber(size_t stack_bytes, void (*entry)(void*), void* argument);
  ~Fiber();

  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves `from`, which runs, and goes on where `to` was left.
  static void Switch(Fiber& from, Fiber& to);

  // A number for what the calling fiber, which is `this`, has on its stack and in the registers that
  // calls keep: the same when it comes to the same place with the same local variables, and only
  // then. Bytes that nobody uses any more count as well. Not of a thread's own stack.
  uint64_t HashStack() const;

  // The pages below the stack that nobody may touch.
  bool is_below(const void* address) const {
    const char* at = static_cast<const char*>(address);
    return mapping_ != nullptr && at >= mapping_ && at < static_cast<const char*>(stack_bottom_);
  }

  // Forgets what the fiber, which must not run, had on its stack: nothing there is destroyed. The
  // next switch to it calls its entry again.
  void Restart();

 private:
  static void Enter(void* fiber);
  void Arrived();

  void* stack_pointer_ = nullptr;
  char* mapping_ = nullptr;  // null for a thread's own stack
  size_t mapping_bytes_ = 0;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  // What the C++ runtime keeps per thread of exceptions in flight: a list and a count.
  void* exceptions_[2] = {nullptr, nullptr};
  // For the sanitizers.
  const void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  Fiber* arrived_from_ = nullptr;
  void* thread_sanitizer_fiber_ = nullptr;
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_FIBER_H_
