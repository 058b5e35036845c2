// LeaseList: the items of a pool. Who leases takes the idle one that came back last, or makes one, so that
// there are as many as were ever leased at a time.
//
// Invariant: an item in the list is idle or leased by one. One that is gone has been counted once, and ends
// once and without the lock. From Close() on none is or becomes idle.
//
// A template over what synchronises, so that the code that runs is the code that is explored
// (lease_list_exploration_test.cc).
//
// Threads: any; an item that is leased is its holder's. Cost: a lock and a few words; nothing is allocated
// here, so nothing but what makes an item throws.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_LEASE_LIST_H_
#define TIDEPOOL_MEMORY_WORKSPACE_LEASE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace tidepool {

// What an item has for its list, whose lock guards it.
template <typename Sync, typename Item>
struct LeaseLinks {
  typename Sync::template Plain<Item*> next{nullptr};  // of all
  typename Sync::template Plain<Item*> previous{nullptr};
  typename Sync::template Plain<Item*> next_idle{nullptr};  // that came back before it
  typename Sync::template Plain<uint64_t> idle_since{0};    // how many uses there had been
  typename Sync::template Plain<uint64_t> visit{0};         // the last that came to it
};

// Traits:
//   Owner                   what owns an item, as std::unique_ptr<Item>
//   Links(item)             its LeaseLinks
//   Numbers                 a sum of what items count, trivially copyable; zero when made
//   Count(item, &numbers)   adds what it has counted, also while its holder works; noexcept
//   CountGone(item, &numbers)  likewise of one that is gone, for ever
template <typename Sync, typename Item, typename Traits>
class LeaseList {
 public:
  using Owner = typename Traits::Owner;
  using Numbers = typename Traits::Numbers;
  struct Totals {
    Numbers numbers;  // of all there ever were
    size_t items = 0;
    size_t leased = 0;  // of them
  };

  LeaseList() = default;
  // None is leased. Idle ones end.
  ~LeaseList() { EndIdle(); }
  LeaseList(const LeaseList&) = delete;
  LeaseList& operator=(const LeaseList&) = delete;

  // `make` returns a new item and is called without the lock. Throws what it throws, nothing changed.
  template <typename Make>
  Owner Lease(const Make& make) {
    Owner item = TakeIdle(/*to_lease=*/true);
    if (item != nullptr) return item;
    item = make();
    std::lock_guard<Mutex> lock(mutex_);
    Add(item.get());
    return item;
  }

  // One that is not usable is gone. `uses`: what its holder has made of it and not told by
  // CountUses().
  void Return(Owner item, bool usable, uint64_t uses = 1) noexcept {
    std::lock_guard<Mutex> lock(mutex_);
    leased_.set(leased_.get() - 1);
    uses_.set(uses_.get() + uses);
    if (usable && !closed_.get()) {
      Traits::Links(*item).next_idle.set(idle_.get());
      Traits::Links(*item).idle_since.set(uses_.get());
      idle_.set(item.release());
    } else {
      Remove(item.get());
    }
  }
  // Of an item that stays leased.
  void CountUses(uint64_t uses) noexcept {
    std::lock_guard<Mutex> lock(mutex_);
    uses_.set(uses_.get() + uses);
  }

  // Looked for once in kLooks uses: of those that were not leased during at least `uses` uses of
  // others, and that are `wanted`, the one that came back first; null: none. It is the caller's
  // until PutBack().
  static constexpr uint64_t kLooks = 16;
  template <typename Wanted>
  Owner TakeLongIdle(uint64_t uses, const Wanted& wanted) noexcept {
    std::lock_guard<Mutex> lock(mutex_);
    if (uses_.get() - looked_at_.get() < kLooks) return nullptr;
    looked_at_.set(uses_.get());
    Item* found = nullptr;
    Item* newer_than_found = nullptr;
    Item* newer = nullptr;
    for (Item* item = idle_.get(); item != nullptr; item = Traits::Links(*item).next_idle.get()) {
      if (uses_.get() - Traits::Links(*item).idle_since.get() >= uses && wanted(*item)) {
        found = item;
        newer_than_found = newer;
      }
      newer = item;
    }
    if (found == nullptr) return nullptr;
    Item* const older = Traits::Links(*found).next_idle.get();
    if (newer_than_found != nullptr) {
      Traits::Links(*newer_than_found).next_idle.set(older);
    } else {
      idle_.set(older);
    }
    leased_.set(leased_.get() + 1);
    return Owner(found);
  }
  // Behind all that are idle: it is leased last.
  void PutBack(Owner item) noexcept {
    std::lock_guard<Mutex> lock(mutex_);
    leased_.set(leased_.get() - 1);
    if (closed_.get()) return Remove(item.get());
    Traits::Links(*item).next_idle.set(nullptr);
    Traits::Links(*item).idle_since.set(uses_.get());
    Item* last = idle_.get();
    if (last == nullptr) {
      idle_.set(item.release());
      return;
    }
    while (Item* const next = Traits::Links(*last).next_idle.get()) last = next;
    Traits::Links(*last).next_idle.set(item.release());
  }

  // Who goes through all there are, one after the other: a number of his own.
  uint64_t BeginVisit() noexcept {
    std::lock_guard<Mutex> lock(mutex_);
    visits_.set(visits_.get() + 1);
    return visits_.get();
  }
  // Those that he was not at yet, until `take(item)`, which is called with the lock, has said of `most` that it
  // took them: from then on they may go, and what was taken must not. True: there are others.
  template <typename Take>
  bool Visit(uint64_t visit, size_t most, const Take& take) noexcept {
    std::lock_guard<Mutex> lock(mutex_);
    size_t taken = 0;
    for (Item* item = first_.get(); item != nullptr; item = Traits::Links(*item).next.get()) {
      if (Traits::Links(*item).visit.get() >= visit) continue;
      if (taken == most) return true;
      Traits::Links(*item).visit.set(visit);
      taken += take(*item);
    }
    return false;
  }

  void EndIdle() noexcept {
    while (Owner item = TakeIdle(/*to_lease=*/false)) {
    }
  }

  // Those that are idle end, and so does what comes back from now on.
  void Close() noexcept {
    {
      std::lock_guard<Mutex> lock(mutex_);
      closed_.set(true);
    }
    EndIdle();
  }

  // Of one moment, as far as holders do not go on counting.
  Totals totals() const noexcept {
    std::lock_guard<Mutex> lock(mutex_);
    Totals totals{gone_.get(), items_.get(), leased_.get()};
    for (Item* item = first_.get(); item != nullptr; item = Traits::Links(*item).next.get()) {
      Traits::Count(*item, &totals.numbers);
    }
    return totals;
  }

  void LockForFork() const noexcept { mutex_.lock(); }
  void UnlockAfterFork() const noexcept { mutex_.unlock(); }

 private:
  using Mutex = typename Sync::Mutex;
  template <typename T>
  using Plain = typename Sync::template Plain<T>;

  // Null: none is idle. One that is not to be leased is gone.
  Owner TakeIdle(bool to_lease) noexcept {
    std::lock_guard<Mutex> lock(mutex_);
    Item* const item = idle_.get();
    if (item == nullptr) return nullptr;
    idle_.set(Traits::Links(*item).next_idle.get());
    if (to_lease) {
      leased_.set(leased_.get() + 1);
    } else {
      Remove(item);
    }
    return Owner(item);
  }

  // With the lock, leased.
  void Add(Item* item) noexcept {
    Item* const next = first_.get();
    Traits::Links(*item).next.set(next);
    if (next != nullptr) Traits::Links(*next).previous.set(item);
    first_.set(item);
    items_.set(items_.get() + 1);
    leased_.set(leased_.get() + 1);
  }
  // With the lock. What it has counted stays.
  void Remove(Item* item) noexcept {
    Numbers gone = gone_.get();
    Traits::CountGone(*item, &gone);
    gone_.set(gone);
    Item* const next = Traits::Links(*item).next.get();
    Item* const previous = Traits::Links(*item).previous.get();
    if (next != nullptr) Traits::Links(*next).previous.set(previous);
    if (previous != nullptr) {
      Traits::Links(*previous).next.set(next);
    } else {
      first_.set(next);
    }
    items_.set(items_.get() - 1);
  }

  mutable Mutex mutex_;
  // Guarded by it:
  Plain<Item*> first_{nullptr};  // of all, the newest first
  Plain<Item*> idle_{nullptr};   // that came back last
  Plain<size_t> items_{0};
  Plain<size_t> leased_{0};
  Plain<uint64_t> uses_{0};
  Plain<uint64_t> visits_{0};
  Plain<uint64_t> looked_at_{0};  // uses there had been when a long idle one was looked for
  Plain<Numbers> gone_{Numbers{}};
  Plain<bool> closed_{false};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_LEASE_LIST_H_
