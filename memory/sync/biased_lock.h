// BiasedLock: a lock that costs nearly nothing where one thread takes it over and over.
//
// A thread that has come several times running, without another in between, gets the lock's bias: from
// then on it says that it is inside and looks whether the bias is still its own, two plain stores and two
// loads. Any other thread takes the mutex, takes the bias away and waits until the biased one is not inside
// (Kawachiya, Koseki and Onodera, "Lock Reservation", 2002). Each time the bias is lost it takes twice as
// many turns to get it again, up to kMostTurns, so that what taking it away costs (a fence on all
// processors, microseconds) is always little beside the turns before.
//
// Not recursive. Acquire by whoever gets it and release by whoever lets go, as of a mutex. Sections are
// short and call nobody: whoever takes a bias away waits for the section's end by yielding, then by sleeping.
//
// Who may call what: a thread has one BiasedThread, which says whether it is inside of any of such locks,
// so it is inside of one at a time. Before it ends it calls Forget() of each that may have named it.
//
// Orders that matter:
// - Between "I am inside" and "is the bias mine?" on one side, "the bias is gone" and "is it inside?" on
//   the other, lie a light and a heavy fence: with less both may be inside.
// - `inside` is released and acquired: who finds the thread outside comes after what it did inside.
// biased_lock_exploration_test.cc shows that each is needed.
//
// Threads: any. Cost: biased one to two nanoseconds, else a mutex.
#ifndef TIDEPOOL_MEMORY_SYNC_BIASED_LOCK_H_
#define TIDEPOOL_MEMORY_SYNC_BIASED_LOCK_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "tidepool/memory/sync/asymmetric_fence.h"
#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

// Until the biased thread is outside again. It may not be running: one that yields to threads of its own priority alone
// would keep it from that.
template <typename Sync>
struct WaitForBiased {
  void operator()() { Sync::Yield(); }
};
template <>
struct WaitForBiased<StdSync> {
  void operator()() {
    if (++turns <= 16) return StdSync::Yield();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  int turns = 0;
};

// What names a thread; its own, while it lives.
template <typename Sync>
struct BasicBiasedThread {
  typename Sync::template Atomic<bool> inside{false};  // stored by it alone
};

// A thread gets the bias when it has come kLeastTurns times running, at first.
template <typename Sync, uint32_t kLeastTurns = 64, uint32_t kMostTurns = 1 << 16>
class BasicBiasedLock {
 public:
  using Thread = BasicBiasedThread<Sync>;

  // True when the calling thread has the bias and holds the lock now, until UnlockBiased().
  bool TryLockBiased(Thread& thread) noexcept {
    if (bias_.load(std::memory_order_relaxed) != &thread) return false;
    thread.inside.store(true, std::memory_order_relaxed);
    AsymmetricFence<Sync>::Light();
    if (bias_.load(std::memory_order_relaxed) == &thread) [[likely]]
      return true;
    thread.inside.store(false, std::memory_order_relaxed);
    return false;
  }
  static void UnlockBiased(Thread& thread) noexcept {
    thread.inside.store(false, std::memory_order_release);
  }

  // By the mutex, until Unlock(). `thread`: the calling one, which may have the bias from here on;
  // null where it may not.
  void Lock(Thread* thread) noexcept {
    mutex_.lock();
    TakeBias(thread);
  }
  // The same without a bias; false where another holds it by the mutex.
  bool TryLock() noexcept {
    if (!mutex_.try_lock()) return false;
    TakeBias(nullptr);
    return true;
  }
  void Unlock() noexcept { mutex_.unlock(); }

  // The calling thread has no bias from here on, and nobody looks at it any more.
  void Forget(Thread& thread) noexcept {
    mutex_.lock();
    if (bias_.load(std::memory_order_relaxed) == &thread) {
      bias_.store(nullptr, std::memory_order_relaxed);
    }
    if (last_.get() == &thread) last_.set(nullptr);
    mutex_.unlock();
  }

 private:
  // Under the mutex.
  void TakeBias(Thread* thread) noexcept {
    if (Thread* const biased = bias_.load(std::memory_order_relaxed); biased != nullptr) {
      bias_.store(nullptr, std::memory_order_relaxed);
      if (biased != thread) {
        AsymmetricFence<Sync>::Heavy();
        WaitForBiased<Sync> wait;
        while (biased->inside.load(std::memory_order_acquire)) wait();
        needed_.set(std::min(needed_.get() * 2, kMostTurns));
      }
    }
    if (thread == nullptr || thread != last_.get()) {
      last_.set(thread);
      turns_.set(1);
      return;
    }
    turns_.set(turns_.get() + 1);
    if (turns_.get() < needed_.get()) return;
    AsymmetricFence<Sync>::Register();
    bias_.store(thread, std::memory_order_relaxed);
  }

  typename Sync::template Atomic<Thread*> bias_{nullptr};
  typename Sync::Mutex mutex_;
  // Guarded by it:
  typename Sync::template Plain<Thread*> last_{nullptr};  // that came
  typename Sync::template Plain<uint32_t> turns_{0};      // it has come running
  typename Sync::template Plain<uint32_t> needed_{kLeastTurns};
};

using BiasedThread = BasicBiasedThread<StdSync>;
using BiasedLock = BasicBiasedLock<StdSync>;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_BIASED_LOCK_H_
