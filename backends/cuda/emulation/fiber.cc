#include "tidepool/backends/cuda/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tidepool::cuda_emulation {
namespace {

constexpr size_t kPage = 4096;

struct Start {
  void (*entry)(void*);
  void* argument;
};
// Read by a new fiber on its first switch; fibers stay on their thread.
thread_local Start starting;
thread_local FiberContext* left = nullptr;

void AfterSwitch([[maybe_unused]] FiberContext* self) {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom;
  size_t bytes;
  __sanitizer_finish_switch_fiber(self != nullptr ? self->fake_stack : nullptr, &bottom, &bytes);
  if (left != nullptr && left->stack == nullptr) {  // where the thread's own stack lies
    left->stack_bytes = bytes;
    left->sanitizer_fiber = const_cast<void*>(bottom);
  }
#endif
}

[[noreturn]] void Enter() {
  const Start start = starting;
  AfterSwitch(nullptr);
  start.entry(start.argument);
  std::abort();
}

}  // namespace

#if defined(__x86_64__)

extern "C" void TidepoolSwitchStack(void** from, void* to);
asm(R"(
.text
.globl TidepoolSwitchStack
.type TidepoolSwitchStack,@function
TidepoolSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size TidepoolSwitchStack,.-TidepoolSwitchStack
)");

#endif

// What a new fiber begins with is handed over at its first switch.
struct NewFiber {
  Start start;
#if !defined(__x86_64__)
  ucontext_t context;
#endif
};

FiberContext::FiberContext() {
#if !defined(__x86_64__)
  state = new NewFiber();
#endif
#if defined(__SANITIZE_THREAD__)
  sanitizer_fiber = __tsan_get_current_fiber();
#endif
}

FiberContext::FiberContext(size_t bytes, void (*entry)(void*), void* argument) {
  stack_bytes = (bytes + kPage - 1) / kPage * kPage;
  void* const mapping = mmap(nullptr, stack_bytes + kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED || mprotect(mapping, kPage, PROT_NONE) != 0) {
    std::perror("tidepool: the stack of a fiber");
    std::abort();
  }
  stack = static_cast<char*>(mapping) + kPage;
#if defined(__SANITIZE_THREAD__)
  sanitizer_fiber = __tsan_create_fiber(0);
#endif
#if defined(__x86_64__)
  // From the top: a place that keeps calls aligned, Enter to return to, six registers.
  auto* top = reinterpret_cast<uintptr_t*>(static_cast<char*>(stack) + stack_bytes);
  *--top = reinterpret_cast<uintptr_t>(argument);
  *--top = reinterpret_cast<uintptr_t>(entry);
  *--top = 0;
  *--top = reinterpret_cast<uintptr_t>(&Enter);
  for (int i = 0; i < 6; ++i) *--top = 0;
  state = top;
#else
  auto* fiber = new NewFiber();
  fiber->start = {entry, argument};
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = stack;
  fiber->context.uc_stack.ss_size = stack_bytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, reinterpret_cast<void (*)()>(&Enter), 0);
  state = fiber;
#endif
}

FiberContext::~FiberContext() {
#if defined(__SANITIZE_THREAD__)
  if (stack != nullptr) __tsan_destroy_fiber(sanitizer_fiber);
#endif
#if !defined(__x86_64__)
  delete static_cast<NewFiber*>(state);
#endif
  if (stack != nullptr) munmap(static_cast<char*>(stack) - kPage, stack_bytes + kPage);
}

void SwitchFiber(FiberContext& from, FiberContext& to) {
  left = &from;
  if (to.stack != nullptr) {
#if defined(__x86_64__)
    const auto* top =
        reinterpret_cast<const uintptr_t*>(static_cast<char*>(to.stack) + to.stack_bytes);
    starting = {reinterpret_cast<void (*)(void*)>(top[-2]), reinterpret_cast<void*>(top[-1])};
#else
    starting = static_cast<NewFiber*>(to.state)->start;
#endif
  }
#if defined(__SANITIZE_ADDRESS__)
  const void* const bottom = to.stack != nullptr ? to.stack : to.sanitizer_fiber;
  __sanitizer_start_switch_fiber(&from.fake_stack, bottom, to.stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to.sanitizer_fiber, 0);
#endif
#if defined(__x86_64__)
  TidepoolSwitchStack(&from.state, to.state);
#else
  swapcontext(&static_cast<NewFiber*>(from.state)->context,
              &static_cast<NewFiber*>(to.state)->context);
#endif
  AfterSwitch(&from);
}

}  // namespace tidepool::cuda_emulation
