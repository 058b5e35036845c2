// The ledger: bytes by device and kind, now and at most, and how often the system was asked.
//
// Two ways in. Slow paths (heap, provider, imports, packed weights) call Add(), a lock and a few
// additions. Hot paths own an Account: a workspace adds to its own plain counters at the cost of a
// store, and the ledger sums the accounts when somebody looks.
//
// Peaks: of pages and of all kinds changed by Add() they are exact. Bytes used inside workspaces
// are folded in when a cycle ends or anything else changes on the ledger; this is exact while one
// thread works and an upper bound when several workspaces peak at different moments.
//
// Threads: everything may be called from any thread; an Account is written by one thread at a time.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TRACKER_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TRACKER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/device.h"

namespace tidepool {

// Counters of one workspace. Written by the thread that has the workspace open, read by any.
class MemoryAccount {
 public:
  explicit MemoryAccount(Device device) : device_(device) {}

  // Bytes of arrays alive. A load, an add, a compare, a store or two; no locked instruction.
  void AddUsed(int64_t bytes) {
    int64_t used = used_.load(std::memory_order_relaxed) + bytes;
    used_.store(used, std::memory_order_relaxed);
    if (used > window_peak_.load(std::memory_order_relaxed)) {
      window_peak_.store(used, std::memory_order_relaxed);
    }
  }
  void SubUsed(int64_t bytes) {
    used_.store(used_.load(std::memory_order_relaxed) - bytes, std::memory_order_relaxed);
  }

  Device device() const { return device_; }
  int64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class MemoryTracker;
  Device device_;
  std::atomic<int64_t> used_{0};
  std::atomic<int64_t> window_peak_{0};  // since the ledger last folded this account in
  std::atomic<int64_t> owned_{0};        // pages and kept blocks; changed under the ledger's lock
  std::atomic<uint64_t> folded_at_{0};   // ledger change number at the last fold
  std::atomic<int64_t> folded_peak_{0};
};

struct MemoryUsage {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};

// One device's part of a snapshot.
struct DeviceMemory {
  Device device;
  std::array<MemoryUsage, kMemoryKinds> kinds;
  MemoryUsage total;  // all kinds together

  const MemoryUsage& operator[](MemoryKind kind) const { return kinds[static_cast<int>(kind)]; }
};

struct MemorySnapshot {
  std::vector<DeviceMemory> devices;  // those with anything ever counted; the host is always first
  int64_t system_allocations = 0;     // how often tensor memory was asked of the system, ever
  int64_t system_releases = 0;

  const DeviceMemory& operator[](Device device) const;  // throws kNotFound
  std::string ToString() const;                         // a table, one line per device and kind
};

class MemoryTracker {
 public:
  // The process-wide ledger. Never destroyed.
  static MemoryTracker& Global();

  MemoryTracker();
  MemoryTracker(const MemoryTracker&) = delete;
  MemoryTracker& operator=(const MemoryTracker&) = delete;

  // `bytes` may be negative.
  void Add(Device device, MemoryKind kind, int64_t bytes);

  // One request to the system for tensor memory (pages, malloc, a driver call), or its return.
  void CountSystemAllocation() { system_allocations_.fetch_add(1, std::memory_order_relaxed); }
  void CountSystemRelease() { system_releases_.fetch_add(1, std::memory_order_relaxed); }
  int64_t system_allocations() const { return system_allocations_.load(std::memory_order_relaxed); }

  // An account must be unregistered before it dies; what it owned and used leaves the ledger.
  void Register(MemoryAccount* account);
  void Unregister(MemoryAccount* account);
  // Pages and kept blocks of an account; its unused part counts as kUnreferenced.
  void AddOwned(MemoryAccount* account, int64_t bytes);
  // Folds the account's peak since the last fold into the ledger's. Two loads when nothing is new.
  void Fold(MemoryAccount* account) {
    if (account->folded_at_.load(std::memory_order_relaxed) ==
            changes_.load(std::memory_order_relaxed) &&
        account->window_peak_.load(std::memory_order_relaxed) <=
            account->folded_peak_.load(std::memory_order_relaxed)) {
      return;
    }
    FoldSlow(account);
  }

  MemorySnapshot Snapshot();
  // Peaks start again from what is in use now.
  void ResetPeaks();

 private:
  struct PerDevice {
    std::array<MemoryUsage, kMemoryKinds> direct;  // current_bytes without accounts
    int64_t total_peak = 0;
    bool touched = false;
  };
  // These need mutex_ held.
  PerDevice& At(Device device) {
    return devices_[static_cast<int>(device.type) * kMaxDevicesPerType + device.index];
  }
  void FoldSlow(MemoryAccount* account);
  // Raises the peaks of `device` to what the accounts reached, then starts their windows anew.
  void FoldDevice(Device device);

  // std::mutex, which ThreadSanitizer understands also where Abseil is the system's.
  std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<PerDevice> devices_;
  std::vector<MemoryAccount*> accounts_;
  std::atomic<uint64_t> changes_{1};
  std::atomic<int64_t> system_allocations_{0};
  std::atomic<int64_t> system_releases_{0};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TRACKER_H_
