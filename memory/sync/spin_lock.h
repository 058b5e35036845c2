// SpinLock: a lock of one byte for critical sections of tens of nanoseconds, nobody else's code in
// them.
//
// Not recursive. Acquire by whoever gets it and release by whoever lets go: all that was done under
// it has happened before.
#ifndef TIDEPOOL_MEMORY_SYNC_SPIN_LOCK_H_
#define TIDEPOOL_MEMORY_SYNC_SPIN_LOCK_H_

#include <atomic>

#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

// Looks at the lock before the processor is given to another thread: whoever has it may not be
// running. Under a scheduler that runs one thread at a time looking again is of no use.
template <typename Sync>
inline constexpr int kSpinsBeforeYield = 0;
template <>
inline constexpr int kSpinsBeforeYield<StdSync> = 64;

template <typename Sync>
class BasicSpinLock {
 public:
  void lock() noexcept {
    if (locked_.exchange(true, std::memory_order_acquire)) LockSlowly();
  }
  bool try_lock() noexcept { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  void LockSlowly() noexcept {
    for (int spins = 0;;) {
      // Only looked at while it is taken: an exchange would take the line from its holder.
      if (!locked_.load(std::memory_order_relaxed) &&
          !locked_.exchange(true, std::memory_order_acquire)) {
        return;
      }
      if (spins < kSpinsBeforeYield<Sync>) {
        ++spins;  // not beyond: a search knows by it that the loop is where it was
      } else {
        Sync::Yield();
      }
    }
  }

  typename Sync::template Atomic<bool> locked_{false};
};

using SpinLock = BasicSpinLock<StdSync>;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_SPIN_LOCK_H_
