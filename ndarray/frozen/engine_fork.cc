#include "tidepool/ndarray/frozen/engine_fork.h"

#include <pthread.h>

#include <atomic>

#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {
namespace {

constinit std::atomic<const EngineForkHandlers*> registered[kEngineLocks] = {};
// By the fork under way, which has the locks: one may be registered meanwhile.
constinit const EngineForkHandlers* taken[kEngineLocks] = {};

void Before() {
  TellBeforeFork();  // whoever the handlers of memory/ would wait for
  for (int lock = 0; lock < kEngineLocks; ++lock) {
    const EngineForkHandlers* const handlers = registered[lock].load(std::memory_order_acquire);
    if (handlers == nullptr) continue;
    handlers->before();
    taken[lock] = handlers;
  }
}

template <auto kAfter>
void After() {
  for (int lock = kEngineLocks - 1; lock >= 0; --lock) {
    const EngineForkHandlers* const handlers = taken[lock];
    if (handlers == nullptr) continue;
    taken[lock] = nullptr;
    (handlers->*kAfter)();
  }
}

}  // namespace

void HandleEngineFork(EngineLock lock, const EngineForkHandlers* handlers) {
  static const int once = [] {
    // What is registered later runs earlier before a fork: the handlers of memory/ are there by now.
    Reclaimer::Global();
    return pthread_atfork(&Before, &After<&EngineForkHandlers::in_parent>,
                          &After<&EngineForkHandlers::in_child>);
  }();
  static_cast<void>(once);
  const EngineForkHandlers* none = nullptr;
  registered[static_cast<int>(lock)].compare_exchange_strong(none, handlers,
                                                             std::memory_order_acq_rel);
}

}  // namespace tidepool
