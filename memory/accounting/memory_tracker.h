// The ledger: bytes by device, kind and owner, now and at most, and how often the system was asked.
//
// Two ways in. Slow paths (heap, provider, imports, packed weights) call Add(), a lock and a few
// additions. Hot paths own an Account: a workspace adds to its own plain counters at the cost of a
// store, and the ledger sums the accounts when somebody looks.
//
// Changes look at the accounts in use only: an account puts itself on a list when its counters
// move, and is taken off after kQuietFolds changes of the ledger that found it as it was. However
// many workspaces exist, those that do nothing cost an Add() nothing. Readings (Snapshot,
// PeakScope) look at every account.
//
// Owners (memory_owner.h): what is added for a node counts for every node above it as well; a
// device's numbers are those of the root.
//
// Peaks: of pages and of all kinds changed by Add() they are exact. Bytes used inside workspaces
// are folded in when a cycle ends or anything else changes on the ledger; this is exact while one
// workspace works between two folds and an upper bound when several peak at different moments. (A
// thread's counters are plain stores. One that another thread's changes do not see for as long as
// kQuietFolds of them take is counted at its next store, at the end of its cycle, or when somebody
// looks. Processors empty their store buffers long before.)
//
// Threads: everything may be called from any thread; an Account is written by one thread at a time.
// fork(): a child may use Global(), with all that was counted, and the observers of the thread that forked; those that another
// thread put on the ledger are off it. Not a tracker of one's own that another thread was using.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TRACKER_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TRACKER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tidepool/memory/accounting/account_counters.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_snapshot.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

// Counters of one workspace. Written by the thread that has the workspace open, read by any.
class MemoryAccount : public AccountCounters<StdSync> {
 public:
  // `owner`: who the account's memory is held for; null: the process.
  explicit MemoryAccount(Device device, MemoryOwner* owner = nullptr)
      : device_(device), owner_(owner != nullptr ? owner : &MemoryOwner::Process()) {}

  // Where its memory is and who it is held for, as constructed.
  Device device() const { return device_; }
  MemoryOwner* owner() const { return owner_; }

 private:
  friend class MemoryTracker;

  Device device_;
  MemoryOwner* owner_;
  std::atomic<uint64_t> folded_at_{0};   // ledger change number at the last Fold()
  std::atomic<int64_t> folded_peak_{0};  // what it had reached by then
  // Under the ledger's lock:
  size_t index_ = 0;     // among the device's accounts
  int quiet_folds_ = 0;  // running, that found nothing new
  int64_t owned_ = 0;    // pages and kept blocks
  int64_t counted_ = 0;  // of used_: what the owners' sums hold
  int64_t excess_ = 0;   // during a fold: how far the window's peak was above used_
};

// One device's, or one owner's, numbers at a change of the ledger.
struct LedgerReading {
  Device device;                              // whose numbers they are
  std::array<int64_t, kMemoryKinds> current;  // bytes now, by kind
  std::array<int64_t, kMemoryKinds> highest;  // since the change before
  int64_t total;                              // of all kinds, now
  int64_t in_use;                             // total without kUnreferenced
  int64_t in_use_highest;                     // since the change before
};

// Told of changes while the ledger is locked: must be quick and may not call the ledger.
class LedgerObserver {
 public:
  // On the thread that changed the ledger; the reading lives as long as the call.
  virtual void Observe(const LedgerReading& reading) noexcept = 0;

 protected:
  ~LedgerObserver() = default;

 private:
  friend class MemoryTracker;
  bool all_devices_ = false;
  Device device_;
  const MemoryOwner* owner_ = nullptr;
  const void* thread_ = nullptr;  // that put it on the ledger
};

// A ledger. That of the process is Global(); tests make others.
class MemoryTracker {
 public:
  // The process-wide ledger. Never destroyed.
  static MemoryTracker& Global();

  MemoryTracker();
  MemoryTracker(const MemoryTracker&) = delete;
  MemoryTracker& operator=(const MemoryTracker&) = delete;

  // Here and below a device or kind that there cannot be is kInvalidArgument, before anything changes.
  //
  // `bytes` may be negative, for the owner (null: the process) they were added for before; then it
  // does not throw.
  void Add(Device device, MemoryKind kind, int64_t bytes, MemoryOwner* owner = nullptr);

  // The same for `bytes`, at least 0, that somebody says there are (imports, charges) and that the runtime
  // has not taken itself. Throws kInvalidArgument, and adds nothing, where the device's sum would pass
  // kMostCountedBytesInAll; so no sum overflows.
  void AddClaimed(Device device, MemoryKind kind, int64_t bytes, MemoryOwner* owner = nullptr);

  // `bytes` that were added as `*kind` are `to` from here on, and `*kind` says so: one step for whoever
  // reads the ledger or changes the kind on another thread. At no moment do they count twice.
  // `owner` as of Add.
  void ChangeKind(Device device, MemoryKind* kind, MemoryKind to, int64_t bytes,
                  MemoryOwner* owner);

  // One request to the system for tensor memory (pages, malloc, a driver call), or its return.
  void CountSystemAllocation() { system_allocations_.fetch_add(1, std::memory_order_relaxed); }
  void CountSystemRelease() { CountSystemReleases(1); }
  // So many returns.
  void CountSystemReleases(int64_t count) {
    system_releases_.fetch_add(count, std::memory_order_relaxed);
  }
  // Requests to the system so far.
  int64_t system_allocations() const { return system_allocations_.load(std::memory_order_relaxed); }
  // Arrays that were alive when their cycle ended.
  void CountLeakedArrays(int64_t count) { leaked_.fetch_add(count, std::memory_order_relaxed); }

  // An account must be unregistered before it dies; what it owned and used leaves the ledger.
  void Register(MemoryAccount* account);
  void Unregister(MemoryAccount* account);
  // Pages and kept blocks of a registered account; its unused part counts as kUnreferenced.
  void AddOwned(MemoryAccount* account, int64_t bytes) noexcept;
  // Folds the account's peak since the last fold into the ledger's. Two loads when nothing is new.
  void Fold(MemoryAccount* account) {
    if (account->folded_at_.load(std::memory_order_relaxed) ==
            changes_.load(std::memory_order_relaxed) &&
        account->window_peak() <= account->folded_peak_.load(std::memory_order_relaxed)) {
      return;
    }
    FoldSlow(account);
  }
  // Raised by every Add, AddOwned, Register and Unregister: equal numbers, nothing changed.
  uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }
  // How many accounts were looked at by all changes and readings so far. For tests: what an Add
  // costs.
  int64_t accounts_visited();

  // Changes of the ledger after which an account that rests is taken off its list.
  static constexpr int kQuietFolds = 64;

  // All numbers at one moment (memory_snapshot.h), what workspaces did included.
  MemorySnapshot Snapshot();
  // Bytes of that kind now, of a whole device.
  int64_t CurrentBytes(Device device, MemoryKind kind);
  // Peaks start again from what is in use now. Observers go on.
  void ResetPeaks();

  // What is on the ledger now is the observer's first reading; then each change of that owner
  // (null: the process) on that device. Must be taken off before it dies.
  void Observe(LedgerObserver* observer, Device device, MemoryOwner* owner);
  // Each change of any device as a whole, ends of cycles included: dearer.
  void ObserveAllDevices(LedgerObserver* observer);

  // Of either kind; nothing happens to one that does not observe.
  void StopObserving(LedgerObserver* observer);
  // Folds what workspaces did since the last change, so that observers know of it.
  void FoldAll();

 private:
  // Of one owner on one device, everything below it included.
  struct Counts {
    MemoryOwner* owner;
    std::array<MemoryUsage, kMemoryKinds> kinds;  // current_bytes without accounts
    int64_t added = 0;                            // sum of those
    int64_t total_peak = 0;
    int64_t owned = 0;   // accounts' pages
    int64_t used = 0;    // accounts' bytes in use, as of the last fold
    int64_t excess = 0;  // during a fold
  };
  struct DeviceLedger {
    std::vector<std::unique_ptr<Counts>> by_owner;  // by index; [0] of used devices: the process
    std::vector<MemoryAccount*> accounts;
    std::vector<MemoryAccount*> listed;   // of them, whose counters moved lately; room for all
    MemoryAccount::Inbox inbox{nullptr};  // to be added there; pushed without the lock
  };

  friend class MemoryBudget;  // what changes both takes one lock

  // All of these need mutex_ held.
  void AddLocked(Device device, MemoryKind kind, int64_t bytes, MemoryOwner* owner);
  void CountChange() noexcept {
    changes_.store(changes_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  DeviceLedger& At(Device device) { return devices_[DevicePlace("ledger", device)]; }
  static void AddNodes(DeviceLedger& at, MemoryOwner* owner) {
    if (owner->index() >= at.by_owner.size() || at.by_owner[owner->index()] == nullptr) [[unlikely]]
      AddMissingNodes(at, owner);
  }
  static void AddMissingNodes(DeviceLedger& at, MemoryOwner* owner);
  template <typename Function>
  static void ForEachAbove(DeviceLedger& at, const MemoryOwner* owner, const Function& function) {
    for (; owner != nullptr; owner = owner->parent()) function(*at.by_owner[owner->index()]);
  }
  // Raise peaks to what the accounts reached, then start their windows anew: of those that moved,
  // or all.
  void FoldListed(Device device, DeviceLedger& at) noexcept;
  void FoldSomeListed(Device device, DeviceLedger& at) noexcept;
  void FoldEvery(Device device, DeviceLedger& at) noexcept;
  void FoldAccounts(Device device, DeviceLedger& at,
                    const std::vector<MemoryAccount*>& accounts) noexcept;
  static void TakeInbox(DeviceLedger& at) noexcept;
  LedgerReading Read(Device device, const Counts& counts) const;
  void Raise(Device device, Counts& counts) noexcept;
  void RaiseAbove(Device device, DeviceLedger& at, const MemoryOwner* owner) noexcept;
  // As Raise() when only bytes of that kind came and nobody watches.
  static void RaiseKind(Counts& counts, MemoryKind kind) noexcept;
  template <typename Function>
  void ForEachDevice(const Function& function) {
    for (int index = 0; index < static_cast<int>(devices_.size()); ++index) {
      if (!devices_[index].by_owner.empty()) function(DeviceAt(index), devices_[index]);
    }
  }
  void ForgetObserversOfOthers() noexcept;
  void FoldSlow(MemoryAccount* account);

  // std::mutex, which ThreadSanitizer understands also where Abseil is the system's.
  std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<DeviceLedger> devices_;
  std::vector<LedgerObserver*> observers_;
  int all_device_observers_ = 0;
  int64_t accounts_visited_ = 0;
  std::atomic<uint64_t> changes_{1};  // written under mutex_
  std::atomic<int64_t> system_allocations_{0};
  std::atomic<int64_t> system_releases_{0};
  std::atomic<int64_t> leaked_{0};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TRACKER_H_
