// The state behind a RingWorkspace; for memory/ only.
//
// It is put together of: slots (ring_slot.h), each a workspace core of its own; the table of who
// has which (ring_slot_table.h); what slots learn, once for all of them (plan_learner.h). What
// is left to this class is who waits for whom: the lock of table and learner, full rings, and the
// end.
//
// Lock order: mutex_ is the last one. What takes other locks or takes long is done without it:
// making, growing, trimming and freeing slots, making plans and freeing them, ending a lease (the
// slot's own lock). So a release, which takes it for a moment, waits for nothing but its like; and
// the accessors may be called at any time.
//
// The end: the state goes when neither the RingWorkspace, nor a slot, nor a producer that waits
// needs it (holders_). A slot is freed by who removed it from the table, and counts until it is
// freed.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RING_CORE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RING_CORE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "tidepool/memory/device.h"
#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/plan_learner.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_sharing.h"
#include "tidepool/memory/workspace/ring_slot.h"
#include "tidepool/memory/workspace/ring_slot_table.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

class RingCore {
 public:
  enum class Full : uint8_t { kWait, kRefuse };

  static RingCore* New(std::string id, WorkspaceConfig config, Device device);

  // Null: full and `full` is kRefuse, or stopped. The slot is the caller's to enter or to return.
  // Throws as told in ring.h.
  RingSlot* Acquire(Full full, const std::stop_token& stop);
  // Begins the slot's cycle on this thread. Throws; then the slot was returned.
  void Enter(RingSlot* slot, internal::ScopeToken* token);
  // The slot was not entered, or its cycle has ended.
  void Return(RingSlot* slot) noexcept;
  // Ends the scope, which may close, and leaves one lease.
  void Commit(RingSlot* slot, std::string_view tag, internal::ScopeToken* token);
  // The last lease is gone.
  void EndLease(RingSlot* slot) noexcept;
  void Keep(RingSlot* slot, std::string_view tag);
  // This thread took the leased slot out of a channel.
  void Take(RingSlot* slot, const void* channel) noexcept;
  // It comes to the channel for more: what it took there before and is still leased is kept. Throws
  // like Keep when ring_max_kept is exceeded.
  void ComeBack(const void* channel);
  // Of a reader that waits: 0 while a batch may come without a slot being released, else the number
  // of releases so far and one.
  uint64_t StuckForReaders();
  // It has waited for ring_stall_limit_ms: throws kResourceExhausted when that has not changed.
  void ThrowIfStillStuckForReaders(uint64_t stuck);
  // The RingWorkspace is gone.
  void Abandon() noexcept;

  void Initialize();
  void Trim();
  void Destroy();
  // At any time, from any thread.
  RingStats stats();
  void LockForFork() { mutex_.lock(); }
  void UnlockAfterFork() { mutex_.unlock(); }
  std::string Dump();
  uint64_t generation();

  const std::string id;
  const WorkspaceConfig config;
  const Device device;

 private:
  RingCore(std::string id, WorkspaceConfig config, Device device);
  ~RingCore() = default;

  // With mutex_ held, which it gives up meanwhile. Throws what making a slot throws; the ring may be
  // gone then.
  RingSlot* MakeTemporary(std::unique_lock<std::mutex>& lock);
  void MakePlan(const WantedPlan& wanted, const EndedCycle& batch) noexcept;
  // `newest`: the generation when the chain was taken.
  void FollowAndPutBack(RingSlot* chain, const Lesson& lesson, uint64_t newest) noexcept;
  // Of slots that were removed; the ring may be gone after it.
  void Free(RingSlot* chain) noexcept;
  void Leave() noexcept {
    if (holders_.Leave()) delete this;
  }

  // These need mutex_ held.
  bool Wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop);
  void ThrowIfOnlyWhoWaitsCouldRelease() const;
  [[noreturn]] void ThrowOnlyWhoWaitsCouldRelease() const;
  [[noreturn]] void ThrowStalled() const;
  void WakeAllWhenStuck() {
    if (waiters_ > 0 && table_.is_stuck()) changed_.notify_all();
  }

  Holders<StdSync> holders_;
  RingSlot::Ring ring_;  // what its slots know of it

  std::mutex mutex_;
  std::condition_variable_any changed_;  // a slot was freed, or what a wait depends on changed
  // Guarded by mutex_:
  RingSlotTable table_;
  std::optional<PlanLearner> learner_;        // made when the slots' alignment is known
  bool idle_outdated_ = false;                // some on the shelf follow an older version
  std::atomic<bool> wants_lifetimes_{false};  // the learner's, as of the last batch
  RingStats stats_;        // but for what stats() adds: open slots are in none of its counters
  uint64_t openings_ = 0;  // ever, refused ones too
  uint64_t returned_ = 0;  // slots, ever
  int waiters_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RING_CORE_H_
