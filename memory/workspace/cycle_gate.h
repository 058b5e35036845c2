// CycleGate: who has a workspace open. One word says it: nobody, a thread, the leases of a ring's
// slot, or whoever changes the workspace while it is closed (the Reclaimer, Trim, a ring).
//
// Invariant: at most one of them is inside, and who comes in sees all that the one before has
// written. Who finds a thread or leases inside is refused at once; who finds it maintained waits,
// asleep, because that ends by itself. Maintenance that takes long asks wanted() between its steps
// and ends early, so that no wait is longer than a step. Maintenance may call back
// (accounting/callbacks.h), so who is in a callback does not wait. A workspace that is destroyed
// while it is maintained is left to whoever maintains it.
//
// A token is the address of something of a thread's own, a multiple of 8: nobody else can match it,
// so the comparison of is_open_on() needs no order. Entering acquires what leaving released;
// nothing else is ordered here.
//
// A template over what synchronises (memory/sync/std_sync.h), so that the code that runs is the
// code that is explored (workspace_protocols_test.cc). Threads: any, as said at each function.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CYCLE_GATE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CYCLE_GATE_H_

#include <atomic>
#include <cstdint>

#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

template <typename Sync>
class BasicCycleGate {
 public:
  enum class Entry : uint8_t {
    kEntered,
    kOpenElsewhere,  // on another thread, or its leases are out
    kReportingHere,  // this thread is telling what it found in the cycle that ends
    kMaintained,     // by anybody; only TryEnter() says so
  };

  // ---- any thread -------------------------------------------------------------------------
  Entry Enter(const void* token) {
    for (;; AwaitMaintenance()) {
      const Entry entry = TryEnter(token);
      if (entry != Entry::kMaintained) return entry;
    }
  }
  // Waits for nobody.
  Entry TryEnter(const void* token) {
    const uintptr_t mine = Word(token);
    uintptr_t found = kNobody;
    // Acquire: what was done inside before is seen.
    if (word_.compare_exchange_strong(found, mine, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return Entry::kEntered;
    }
    if (found == (mine | kReporting)) return Entry::kReportingHere;
    return found == kMaintained ? Entry::kMaintained : Entry::kOpenElsewhere;
  }
  // Keeps it closed until EndMaintenance(). TryMaintain does not wait for other maintenance; `open`
  // is set when somebody has it open.
  bool TryMaintain(bool* open = nullptr) {
    uintptr_t found = kNobody;
    if (word_.compare_exchange_strong(found, kMaintained, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return true;
    }
    if (open != nullptr) *open = found != kMaintained;
    return false;
  }
  // False when somebody has it open.
  bool Maintain() {
    for (bool open = false; !TryMaintain(&open); AwaitMaintenance()) {
      if (open) return false;
    }
    return true;
  }
  // It is destroyed, and not open. Waits for nobody. True: it is closed for good, and the caller's.
  // False: it becomes whose EndMaintenance() says so.
  bool CloseForGood() {
    for (;;) {
      if (TryMaintain()) return true;
      uintptr_t found = kMaintained;
      // Release: who gets it sees what was done before.
      if (word_.compare_exchange_strong(found, kMaintainedLast, std::memory_order_release,
                                        std::memory_order_relaxed)) {
        return false;
      }
    }
  }
  bool is_open() const {
    const uintptr_t word = word_.load(std::memory_order_relaxed);
    return word != kNobody && word != kMaintained && word != kMaintainedLast;
  }
  // For the thread `token` belongs to.
  bool is_open_on(const void* token) const {
    return word_.load(std::memory_order_relaxed) == Word(token);
  }
  bool is_leased() const { return word_.load(std::memory_order_acquire) == kLeased; }

  // ---- whoever is inside --------------------------------------------------------------------
  // What was done is there for the next one to enter.
  void Leave() { word_.store(kNobody, std::memory_order_release); }
  // False: it was closed for good meanwhile, and is the caller's.
  [[nodiscard]] bool EndMaintenance() {
    uintptr_t found = kMaintained;
    const bool left = word_.compare_exchange_strong(found, kNobody, std::memory_order_release,
                                                    std::memory_order_acquire);
    if (left) word_.notify_all();
    return left;
  }
  // Somebody waits for the maintenance to end.
  bool wanted() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  // From here on this thread is inside to report, and nobody may allocate; nothing is leased.
  void Report(const void* token) {
    word_.store(Word(token) | kReporting, std::memory_order_relaxed);
  }
  // The cycle goes on without a thread: its leases are inside.
  void HandOver() { word_.store(kLeased, std::memory_order_release); }

 private:
  static constexpr uintptr_t kNobody = 0;
  static constexpr uintptr_t kReporting = 1;  // beside a token
  static constexpr uintptr_t kMaintained = 2;
  static constexpr uintptr_t kLeased = 4;
  static constexpr uintptr_t kMaintainedLast = 6;  // and destroyed

  static uintptr_t Word(const void* token) { return reinterpret_cast<uintptr_t>(token); }

  void AwaitMaintenance() {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    word_.wait(kMaintained, std::memory_order_relaxed);
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }

  typename Sync::template Atomic<uintptr_t> word_{kNobody};
  typename Sync::template Atomic<int32_t> waiting_{0};
};

using CycleGate = BasicCycleGate<StdSync>;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CYCLE_GATE_H_
