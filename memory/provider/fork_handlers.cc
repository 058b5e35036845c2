#include "tidepool/memory/provider/fork_handlers.h"

#include <pthread.h>

#include <atomic>

namespace tidepool {
namespace {

constinit std::atomic<const ForkHandlers*> registered[kForkLevels] = {};
// By the fork under way, which has the locks: a level may be registered meanwhile.
constinit const ForkHandlers* taken[kForkLevels] = {};
constinit std::atomic<uint64_t> forks{0};

constinit std::atomic<void (*)() noexcept> told_before{nullptr};

void Before() {
  TellBeforeFork();
  for (int level = 0; level < kForkLevels; ++level) {
    const ForkHandlers* const handlers = registered[level].load(std::memory_order_acquire);
    if (handlers == nullptr) continue;
    handlers->before();
    taken[level] = handlers;
  }
}

template <auto kAfter>
void After() {
  for (int level = kForkLevels - 1; level >= 0; --level) {
    const ForkHandlers* const handlers = taken[level];
    if (handlers == nullptr) continue;
    taken[level] = nullptr;
    (handlers->*kAfter)();
  }
}

void InChild() {
  forks.fetch_add(1, std::memory_order_relaxed);
  After<&ForkHandlers::in_child>();
}

int RegisterOnce() {
  static const int once = pthread_atfork(&Before, &After<&ForkHandlers::in_parent>, &InChild);
  return once;
}
// Before there are threads: a child would wait for one that was about to do it.
[[maybe_unused]] const int registered_at_start = RegisterOnce();

}  // namespace

void HandleFork(ForkLevel level, const ForkHandlers* handlers) {
  RegisterOnce();  // what registers with the system after this is called before these
  const ForkHandlers* none = nullptr;
  registered[static_cast<int>(level)].compare_exchange_strong(none, handlers,
                                                              std::memory_order_acq_rel);
}

bool IsForkHandled(ForkLevel level) noexcept {
  return registered[static_cast<int>(level)].load(std::memory_order_acquire) != nullptr;
}

void TellBeforeFork() noexcept {
  if (const auto tell = told_before.load(std::memory_order_acquire); tell != nullptr) tell();
}

void ToldBeforeFork(void (*tell)() noexcept) noexcept {
  told_before.store(tell, std::memory_order_release);
}

uint64_t ForksBehind() noexcept { return forks.load(std::memory_order_relaxed); }

}  // namespace tidepool
