#include "tidepool/memory/testing/explorer/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "tidepool/memory/error.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TIDEPOOL_EXPLORER_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define TIDEPOOL_EXPLORER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TIDEPOOL_EXPLORER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define TIDEPOOL_EXPLORER_TSAN 1
#endif
#if defined(TIDEPOOL_EXPLORER_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(TIDEPOOL_EXPLORER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

// switch_stack(&left, entered) saves the registers that a callee keeps on the stack it leaves and
// takes them from the one it enters. start_stack is what a new stack "returns" to. Tests run on
// x86-64; that for AArch64 has been assembled, not run.
extern "C" void tidepool_explorer_switch_stack(void** left, void* entered);
extern "C" void tidepool_explorer_start_stack();

#if defined(__x86_64__)
asm(R"(
.text
.globl tidepool_explorer_switch_stack
.hidden tidepool_explorer_switch_stack
.type tidepool_explorer_switch_stack, @function
.p2align 4
tidepool_explorer_switch_stack:
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
.size tidepool_explorer_switch_stack, .-tidepool_explorer_switch_stack
.globl tidepool_explorer_start_stack
.hidden tidepool_explorer_start_stack
.type tidepool_explorer_start_stack, @function
.p2align 4
tidepool_explorer_start_stack:
  .cfi_startproc
  .cfi_undefined rip
  movq %r12, %rdi
  callq *%r13
  ud2
  .cfi_endproc
.size tidepool_explorer_start_stack, .-tidepool_explorer_start_stack
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl tidepool_explorer_switch_stack
.hidden tidepool_explorer_switch_stack
.type tidepool_explorer_switch_stack, %function
.p2align 4
tidepool_explorer_switch_stack:
  stp x19, x20, [sp, #-160]!
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x19, x20, [sp], #160
  ret
.size tidepool_explorer_switch_stack, .-tidepool_explorer_switch_stack
.globl tidepool_explorer_start_stack
.hidden tidepool_explorer_start_stack
.type tidepool_explorer_start_stack, %function
.p2align 4
tidepool_explorer_start_stack:
  .cfi_startproc
  .cfi_undefined x30
  mov x0, x19
  blr x20
  brk #1
  .cfi_endproc
.size tidepool_explorer_start_stack, .-tidepool_explorer_start_stack
)");
#else
#error "The explorer of interleavings knows how to switch stacks on x86-64 and AArch64 only."
#endif

namespace tidepool::explorer::internal {
namespace {

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Where a new stack begins: start_stack as the address to return to, and in the registers that it
// reads the function to call and its argument.
void* NewStack(char* top, void (*function)(void*), void* argument) {
#if defined(__x86_64__)
  uint64_t* slots = reinterpret_cast<uint64_t*>(top - 64) - 7;
  slots[0] = slots[1] = slots[4] = slots[5] = 0;    // r15, r14, rbx, rbp
  slots[2] = reinterpret_cast<uint64_t>(function);  // r13
  slots[3] = reinterpret_cast<uint64_t>(argument);  // r12
  slots[6] = reinterpret_cast<uint64_t>(&tidepool_explorer_start_stack);
#else
  uint64_t* slots = reinterpret_cast<uint64_t*>(top - 64) - 20;
  std::memset(slots, 0, 160);
  slots[0] = reinterpret_cast<uint64_t>(argument);                         // x19
  slots[1] = reinterpret_cast<uint64_t>(function);                         // x20
  slots[11] = reinterpret_cast<uint64_t>(&tidepool_explorer_start_stack);  // x30
#endif
  return slots;
}

}  // namespace

Fiber::Fiber() {
#if defined(TIDEPOOL_EXPLORER_TSAN)
  thread_sanitizer_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(size_t stack_bytes, void (*entry)(void*), void* argument)
    : entry_(entry), argument_(argument) {
  const size_t page = PageBytes();
  stack_bytes_ = (stack_bytes + page - 1) / page * page;
  // Several, so that the frame of one function does not reach beyond them.
  const size_t guard = 16 * page;
  mapping_bytes_ = stack_bytes_ + guard;
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) ThrowErrno(errno, "mapping the stack of an explored thread");
  mapping_ = static_cast<char*>(mapping);
  mprotect(mapping_, guard, PROT_NONE);
  stack_bottom_ = mapping_ + guard;
#if defined(TIDEPOOL_EXPLORER_TSAN)
  thread_sanitizer_fiber_ = __tsan_create_fiber(0);
#endif
  Restart();
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
#if defined(TIDEPOOL_EXPLORER_ASAN)
  __asan_unpoison_memory_region(stack_bottom_, stack_bytes_);
#endif
#if defined(TIDEPOOL_EXPLORER_TSAN)
  __tsan_destroy_fiber(thread_sanitizer_fiber_);
#endif
  munmap(mapping_, mapping_bytes_);
}

#if defined(TIDEPOOL_EXPLORER_ASAN)
__attribute__((no_sanitize("address")))
#endif
#if defined(TIDEPOOL_EXPLORER_TSAN)
__attribute__((no_sanitize("thread")))
#endif
__attribute__((noinline)) uint64_t
Fiber::HashStack() const {
  // A local variable of the caller is in one of the registers that calls keep, or has been saved on
  // the stack between here and there.
#if defined(__x86_64__)
  uint64_t registers[6];
  asm volatile(
      "movq %%rbx, 0(%0)\n movq %%rbp, 8(%0)\n movq %%r12, 16(%0)\n"
      "movq %%r13, 24(%0)\n movq %%r14, 32(%0)\n movq %%r15, 40(%0)\n"
      :
      : "r"(registers)
      : "memory");
#else
  uint64_t registers[20];
  asm volatile(
      "stp x19, x20, [%0]\n stp x21, x22, [%0, #16]\n stp x23, x24, [%0, #32]\n"
      "stp x25, x26, [%0, #48]\n stp x27, x28, [%0, #64]\n stp x29, xzr, [%0, #80]\n"
      "stp d8, d9, [%0, #96]\n stp d10, d11, [%0, #112]\n stp d12, d13, [%0, #128]\n"
      "stp d14, d15, [%0, #144]\n"
      :
      : "r"(registers)
      : "memory");
#endif
  uint64_t hash = 0;
  auto add = [&hash](uint64_t word) __attribute__((always_inline)) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  // From the array on, whose frame also has what this function saved of the registers before; on
  // AArch64 that lies at the frame's lower end.
  const auto* word = std::min<const volatile uint64_t*>(
      registers, static_cast<const volatile uint64_t*>(__builtin_frame_address(0)));
  const auto* end = reinterpret_cast<const volatile uint64_t*>(mapping_ + mapping_bytes_ - 64);
#if defined(TIDEPOOL_EXPLORER_ASAN)
  void* const fake = __asan_get_current_fake_stack();
#endif
  for (; word < end; ++word) {
    add(*word);
#if defined(TIDEPOOL_EXPLORER_ASAN)
    // Local variables may lie in a frame elsewhere, which the one here points to.
    void *frame = nullptr, *frame_end = nullptr;
    if (fake == nullptr || __asan_addr_is_in_fake_stack(fake, reinterpret_cast<void*>(*word),
                                                        &frame, &frame_end) == nullptr) {
      continue;
    }
    for (auto* at = static_cast<const volatile uint64_t*>(frame); at < frame_end; ++at) add(*at);
#endif
  }
  return hash;
}

void Fiber::Restart() {
#if defined(TIDEPOOL_EXPLORER_ASAN)
  __asan_unpoison_memory_region(stack_bottom_, stack_bytes_);
  fake_stack_ = nullptr;
#endif
#if defined(TIDEPOOL_EXPLORER_TSAN)
  // Its record of the calls that were left would otherwise grow with each restart.
  __tsan_destroy_fiber(thread_sanitizer_fiber_);
  thread_sanitizer_fiber_ = __tsan_create_fiber(0);
#endif
  exceptions_[0] = exceptions_[1] = nullptr;
  stack_pointer_ = NewStack(mapping_ + mapping_bytes_, &Fiber::Enter, this);
}

void Fiber::Enter(void* fiber) {
  Fiber* self = static_cast<Fiber*>(fiber);
  self->Arrived();
  self->entry_(self->argument_);
}

void Fiber::Arrived() {
#if defined(TIDEPOOL_EXPLORER_ASAN)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  if (arrived_from_->mapping_ == nullptr) {
    arrived_from_->stack_bottom_ = bottom;
    arrived_from_->stack_bytes_ = bytes;
  }
#endif
}

void Fiber::Switch(Fiber& from, Fiber& to) {
  auto* exceptions = reinterpret_cast<char*>(abi::__cxa_get_globals());
  std::memcpy(from.exceptions_, exceptions, sizeof(from.exceptions_));
  std::memcpy(exceptions, to.exceptions_, sizeof(to.exceptions_));
  to.arrived_from_ = &from;
#if defined(TIDEPOOL_EXPLORER_ASAN)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_bottom_, to.stack_bytes_);
#endif
#if defined(TIDEPOOL_EXPLORER_TSAN)
  __tsan_switch_to_fiber(to.thread_sanitizer_fiber_, 0);
#endif
  tidepool_explorer_switch_stack(&from.stack_pointer_, to.stack_pointer_);
  from.Arrived();
}

}  // namespace tidepool::explorer::internal
