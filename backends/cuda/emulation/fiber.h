// Fibers: stacks of their own on one operating system thread, switched without system calls.
//
// Threads: a fiber lives and runs on the thread that made it.
// Cost: a switch is about 5 ns on x86-64; elsewhere ucontext is used, with a system call each.
#ifndef TIDEPOOL_BACKENDS_CUDA_EMULATION_FIBER_H_
#define TIDEPOOL_BACKENDS_CUDA_EMULATION_FIBER_H_

#include <cstddef>

namespace tidepool::cuda_emulation {

// A place to continue at: of a fiber, or of the stack that the operating system gave the thread.
struct FiberContext {
  void* state = nullptr;  // the saved stack pointer, or a ucontext
  void* stack = nullptr;  // lowest address; null: the thread's own
  size_t stack_bytes = 0;
  void* sanitizer_fiber = nullptr;
  void* fake_stack = nullptr;

  FiberContext();
  // Will call entry(argument), which must not return. Below the stack lies a page without access.
  FiberContext(size_t stack_bytes, void (*entry)(void*), void* argument);
  ~FiberContext();
  FiberContext(const FiberContext&) = delete;
};

// Continues at `to`; returns when somebody switches back to `from`.
void SwitchFiber(FiberContext& from, FiberContext& to);

}  // namespace tidepool::cuda_emulation

#endif  // TIDEPOOL_BACKENDS_CUDA_EMULATION_FIBER_H_
