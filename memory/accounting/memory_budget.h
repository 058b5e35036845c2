// Limits on the memory taken from the system: of the process, of a device, of an owner on a device.
//
//   MemoryBudget::Global().SetDeviceLimit(Host(), 2 << 30);
//   MemoryBudget::Global().SetOwnerLimit(MemoryOwner::Process().Child("loader"), Host(), 64 << 20);
//
// Every path that takes memory from the system (heap arrays, workspace pages, chunks of pools,
// files read into memory) reserves its bytes first. Where a limit would be exceeded the Reclaimer
// is asked for what is missing; if that is not enough, OutOfMemoryError says who asked for how
// much, which limit stands in the way, who holds what, and what would have to go. Its report() is
// the ledger. Imported memory is somebody else's and not counted.
//
// Limits may change at any time. A limit below what is taken already takes nothing away: nothing
// more is granted until enough has gone.
//
// Whoever wants to do something before a limit refuses is told by memory_events.h: of each budget that
// reaches another level, of what the Reclaimer is asked for, and of what is refused in the end.
//
// Threads: any. Cost: the ledger's lock for a moment.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_BUDGET_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_level.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/device_check.h"

namespace tidepool {

// Of one node of the hierarchy, everything below it included.
struct BudgetUsage {
  int64_t taken_bytes = 0;                                         // now
  int64_t limit_bytes = std::numeric_limits<int64_t>::max();       // kUnlimited: none is set
  int64_t soft_limit_bytes = std::numeric_limits<int64_t>::max();  // likewise
  int64_t requests = 0;                                            // granted, ever
  int64_t requested_bytes = 0;               // granted, ever; at most INT64_MAX
  MemoryLevel level = MemoryLevel::kNormal;  // of taken_bytes under the limit

  // By how much the limit is exceeded; 0: it is not.
  int64_t over_bytes() const { return taken_bytes > limit_bytes ? taken_bytes - limit_bytes : 0; }
};

// Written under a lock, read by anybody.
struct BudgetLine {
  // As in BudgetUsage.
  std::atomic<int64_t> taken{0};
  std::atomic<int64_t> requests{0};
  std::atomic<int64_t> requested_bytes{0};
  std::atomic<int64_t> limit{std::numeric_limits<int64_t>::max()};
  std::atomic<int64_t> soft_limit{std::numeric_limits<int64_t>::max()};
  std::atomic<MemoryLevel> level{MemoryLevel::kNormal};  // kept while there are limits
};

// The hierarchy of limits: of the process, of each device, and of each owner on each device.
class MemoryBudget {
 public:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();  // no limit

  // The process-wide budget. Never destroyed.
  static MemoryBudget& Global();

  // Bytes from 0, or kUnlimited, of a device that there may be; else kInvalidArgument is thrown. What is missing under the new
  // limit is reclaimed as far as possible; the usage afterwards is returned, and over_bytes() of it
  // says by how much it still exceeds the limit. Of an owner that shares its node with others
  // (MemoryOwner::is_shared) kFailedPrecondition: what is limited would not be what was asked for.
  BudgetUsage SetProcessLimit(int64_t bytes);
  BudgetUsage SetDeviceLimit(Device device, int64_t bytes);
  BudgetUsage SetOwnerLimit(MemoryOwner& owner, Device device, int64_t bytes);

  // What is granted beyond a soft limit has the Reclaimer asked first for what is over it, spillers included: arrays go to a file
  // before a limit refuses. It never refuses. As the limits above otherwise, which hold beside it. Each request
  // that finds it crossed asks again. Of heap arrays, pages and the like; chunks of blocks that do not fit into a workspace cross it unasked.
  BudgetUsage SetProcessSoftLimit(int64_t bytes);
  BudgetUsage SetDeviceSoftLimit(Device device, int64_t bytes);
  BudgetUsage SetOwnerSoftLimit(MemoryOwner& owner, Device device, int64_t bytes);

  // What is given back on this thread while one lives has its changes of levels told when it ends: for who gives back under
  // a lock that callbacks take. Of more than some owners at once those beyond are told with their next change.
  class TellLater {
   public:
    TellLater() noexcept;
    ~TellLater();
    TellLater(const TellLater&) = delete;
    TellLater& operator=(const TellLater&) = delete;

   private:
    friend class MemoryBudget;
    // False: there is none on this thread.
    static bool Take(Device device, MemoryOwner& owner, int64_t* bytes) noexcept;

    struct Released {
      Device device;
      MemoryOwner* owner = nullptr;
      int64_t bytes = 0;
    };
    static constexpr int kMost = 8;
    TellLater* const outer_;
    Released released_[kMost];
    int count_ = 0;
  };

  // Whether anybody has set one, of either kind.
  bool limited() const { return limits_.load(std::memory_order_relaxed) != 0; }

  // Of the process, of a device, and of an owner on a device. kInvalidArgument for a device that
  // there cannot be.
  BudgetUsage process() const;
  BudgetUsage Of(Device device) const;
  BudgetUsage Of(const MemoryOwner& owner, Device device) const;

  // Before `bytes` are taken from the system for `owner`. `what` ("pages", "a heap array") is named
  // in the error. Throws OutOfMemoryError; nothing is changed then. More than kMostCountedBytes at
  // once, and what brings the process beyond kMostCountedBytesInAll, is refused whatever the limits are;
  // less than 0 is kInvalidArgument.
  void Reserve(Device device, MemoryOwner& owner, int64_t bytes, const char* what);
  // The same without asking the Reclaimer and without an error: returns how many bytes would have
  // to go, 0 when they are reserved. Throws bad_alloc.
  int64_t TryReserve(Device device, MemoryOwner& owner, int64_t bytes);
  // The error of Reserve, for whom TryReserve has refused; `reclaimed`: in between.
  [[noreturn]] void ThrowOverLimit(Device device, MemoryOwner& owner, int64_t bytes,
                                   const char* what, int64_t reclaimed);
  // Before TryReserve, by who keeps to soft limits as Reserve does.
  void KeepToSoftLimits(Device device, MemoryOwner& owner, int64_t bytes, const char* what) {
    if (soft_limits_.load(std::memory_order_relaxed) != 0)
      AskAtSoftLimits(device, owner, bytes, what);
  }
  // After they were given back, or could not be had. More than `owner` and those below it have reserved ends the
  // program with a message.
  void Release(Device device, MemoryOwner& owner, int64_t bytes) noexcept;

  // For single blocks, which are made and given back often: budget and ledger in one step.
  // A block just made. False when there are limits, which are to be asked before. Throws bad_alloc.
  // Nothing is counted in both cases.
  bool CountWithoutLimits(Device device, MemoryKind kind, MemoryOwner& owner, int64_t bytes);
  // Blocks given back that were reserved and are on the ledger, or were counted.
  void Uncount(Device device, MemoryKind kind, MemoryOwner& owner, int64_t bytes) noexcept;

 private:
  friend class MemoryOwnersHold;
  friend class OwnerLease;
  MemoryBudget() = default;
  // Of nodes that are gone (owner_lease.h), until so many are left; into one of that name beside each.
  static void MergeGone(int64_t named, const char* into) noexcept;
  class Merging;
  struct Refusal {
    const MemoryOwner* owner = nullptr;  // null: the process as a whole
    bool whole_process = false;
    BudgetUsage usage;
    int64_t missing = 0;
  };

  static BudgetLine* FindLine(const MemoryOwner& owner, Device device) noexcept;
  static BudgetLine& LineOf(MemoryOwner& owner, Device device);
  static void MakeLines(MemoryOwner& owner, Device device);  // before any change: may throw
  template <typename Function>
  void ForEachLine(MemoryOwner& owner, Device device, const Function& function);
  // The level that lacks most; nothing is missing when `bytes` fit. Under the lock.
  Refusal FindRefusal(MemoryOwner& owner, Device device, int64_t bytes);
  class LevelChanges;
  class KeptLevels;  // within callbacks
  // Under the lock; told without it.
  void FindLevelChanges(MemoryOwner& owner, Device device, LevelChanges& changes);
  // The lock is let go of before callbacks are told.
  void TellOfRelease(std::unique_lock<std::mutex> lock, Device device, MemoryOwner& owner,
                     int64_t bytes) noexcept;
  // `node` null: of the process.
  BudgetUsage SetLimit(std::atomic<int64_t> BudgetLine::*limit, BudgetLine& line, MemoryOwner* node,
                       Device device, int64_t bytes, const std::string& whose);
  BudgetLine& LineToLimit(MemoryOwner& owner, Device device);
  void AskAtSoftLimits(Device device, MemoryOwner& owner, int64_t bytes, const char* what);

  // Written under the lock of MemoryTracker::Global().
  std::atomic<int> limits_{0};       // of both kinds
  std::atomic<int> soft_limits_{0};  // of these
  BudgetLine process_;
};

// Bytes reserved for as long as this lives; what providers keep beside the memory they take.
class BudgetCharge {
 public:
  // `owner` null: the process.
  explicit BudgetCharge(Device device = Host(), MemoryOwner* owner = nullptr)
      : device_(device), owner_(owner != nullptr ? owner : &MemoryOwner::Process()) {}
  ~BudgetCharge() { ShrinkTo(0); }
  BudgetCharge(const BudgetCharge&) = delete;
  BudgetCharge& operator=(const BudgetCharge&) = delete;

  // May throw as MemoryBudget::Reserve; unchanged then. Nothing happens when it is that large.
  void GrowTo(int64_t bytes, const char* what) {
    if (bytes <= bytes_) return;
    MemoryBudget::Global().Reserve(device_, *owner_, bytes - bytes_, what);
    bytes_ = bytes;
  }
  // Nothing happens when it is that small.
  void ShrinkTo(int64_t bytes) noexcept {
    if (bytes >= bytes_) return;
    MemoryBudget::Global().Release(device_, *owner_, bytes_ - bytes);
    bytes_ = bytes;
  }
  // Exchanges what both have reserved, and for whom.
  void Swap(BudgetCharge& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(owner_, other.owner_);
    std::swap(bytes_, other.bytes_);
  }
  int64_t bytes() const { return bytes_; }  // that are reserved

 private:
  Device device_;
  MemoryOwner* owner_;
  int64_t bytes_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_BUDGET_H_
