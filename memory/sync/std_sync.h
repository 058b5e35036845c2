// StdSync: the atomics, locks and waits that the protocols of memory/ are written against.
//
// A protocol between threads (who has a cycle open, what other threads gave back, pins, a node's list)
// is a small class template over such a policy. Production instantiates it with StdSync, whose members
// are the standard library's own, so that nothing is paid; tests instantiate the same template with the
// policy of memory/testing/explorer, which runs it under every interleaving. What a protocol touches
// from several threads therefore goes through the policy: nothing else is explored.
//
// A policy has
//   Atomic<T>     as std::atomic<T> of an integer, an enum, bool or a pointer: load, store, exchange,
//                 compare_exchange_{weak,strong}, fetch_{add,sub,or,and}, wait, notify_one, notify_all;
//                 always with the memory order spelled out
//   Fence(order)  as std::atomic_thread_fence
//   Mutex         lock, try_lock, unlock
//   SharedMutex   the same, and lock_shared, try_lock_shared, unlock_shared
//   Plain<T>      a variable that some rule of the protocol keeps from being raced for; get, set. What get
//                 returns is a reference in production: it is read at once and not kept
//   New, Delete   new and delete of what one thread makes and another may free
//   Yield()       the calling thread has nothing to do before another one does something
#ifndef TIDEPOOL_MEMORY_SYNC_STD_SYNC_H_
#define TIDEPOOL_MEMORY_SYNC_STD_SYNC_H_

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

namespace tidepool {

struct StdSync {
  // What the header's beginning says of each.
  template <typename T>
  using Atomic = std::atomic<T>;

  // std::atomic_thread_fence.
  static void Fence(std::memory_order order) noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wtsan"  // ThreadSanitizer does not see fences
    std::atomic_thread_fence(order);
#pragma GCC diagnostic pop
  }

  // Locks.
  using Mutex = std::mutex;
  using SharedMutex = std::shared_mutex;

  // A variable without order of its own.
  template <typename T>
  class Plain {
   public:
    constexpr Plain() = default;
    constexpr explicit Plain(T value) : value_(std::move(value)) {}

    // The value; a reference that is read at once and not kept.
    const T& get() const { return value_; }
    void set(T value) { value_ = std::move(value); }

   private:
    T value_{};
  };

  // new T(arguments...), and delete.
  template <typename T, typename... Arguments>
  static T* New(Arguments&&... arguments) {
    return new T(std::forward<Arguments>(arguments)...);
  }
  // Of what New made.
  template <typename T>
  static void Delete(T* object) {
    delete object;
  }

  // std::this_thread::yield.
  static void Yield() noexcept { std::this_thread::yield(); }
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SYNC_STD_SYNC_H_
