#include "tidepool/memory/testing/explorer/overflow.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>

#include "tidepool/memory/testing/explorer/engine.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TIDEPOOL_EXPLORER_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TIDEPOOL_EXPLORER_SANITIZED 1
#endif

namespace tidepool::explorer::internal {

#if defined(TIDEPOOL_EXPLORER_SANITIZED)

OverflowReports::OverflowReports() = default;
OverflowReports::~OverflowReports() = default;

#else
namespace {

constexpr size_t kHandlerStack = 64 << 10;
struct sigaction before;

void OnFault(int, siginfo_t* info, void*) {
  const Engine* engine = Engine::Running();
  const int slot = engine != nullptr ? engine->SlotBelowWhoseStackIs(info->si_addr) : -1;
  if (slot >= 0) {
    char text[256];
    char who[16] = "the body";
    if (slot != kBody) std::snprintf(who, sizeof(who), "T%d", slot);
    const int length = std::snprintf(
        text, sizeof(text),
        "tidepool::explorer: in exploration %.100s %s needs more stack than its %zu bytes: raise "
        "Options::stack_bytes\n",
        engine->options().name.c_str(), who, engine->options().stack_bytes);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, length);
  }
  // The fault happens again, to whoever it was handled by before.
  sigaction(SIGSEGV, &before, nullptr);
}

void PutInFront() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action;
    std::memset(&action, 0, sizeof(action));
    action.sa_sigaction = &OnFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, nullptr, &before);
    sigaction(SIGSEGV, &action, nullptr);
  });
}

}  // namespace

OverflowReports::OverflowReports() {
  PutInFront();
  stack_t stack;
  if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
  stack_ = std::make_unique<char[]>(kHandlerStack);
  stack.ss_sp = stack_.get();
  stack.ss_size = kHandlerStack;
  stack.ss_flags = 0;
  sigaltstack(&stack, nullptr);
}

OverflowReports::~OverflowReports() {
  if (stack_ == nullptr) return;
  stack_t stack;
  std::memset(&stack, 0, sizeof(stack));
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
}

#endif

}  // namespace tidepool::explorer::internal
