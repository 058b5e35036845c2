#include "tidepool/memory/provider/fork_handlers.h"

#include <pthread.h>

#include <atomic>

namespace tidepool {
namespace {

constinit std::atomic<const ForkHandlers*> registered[kForkLevels] = {};
// By the fork under way, which has the locks: a level may be registered meanwhile.
constinit const ForkHandlers* taken[kForkLevels] = {};

void Before() {
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

}  // namespace

void HandleFork(ForkLevel level, const ForkHandlers* handlers) {
  static const int once =
      pthread_atfork(&Before, &After<&ForkHandlers::in_parent>, &After<&ForkHandlers::in_child>);
  static_cast<void>(once);
  const ForkHandlers* none = nullptr;
  registered[static_cast<int>(level)].compare_exchange_strong(none, handlers,
                                                              std::memory_order_acq_rel);
}

}  // namespace tidepool
