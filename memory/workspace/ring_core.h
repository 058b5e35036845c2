// The state behind a RingWorkspace; for memory/ only.
//
// Each slot is a WorkspaceCore of its own, so plans, spills, guard mode and the ledger are those of
// workspaces. The ring knows who has which slot, and learns.
//
// Lock order: mutex_ is the last one. What takes other locks or takes long is done without it:
// making, growing, trimming and freeing slots, making plans and freeing them, ending a lease (the
// slot's own lock). So a release, which takes it for a moment, waits for nothing but its like.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RING_CORE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RING_CORE_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_holders.h"
#include "tidepool/memory/workspace/ring_learning.h"
#include "tidepool/memory/workspace/workspace_config.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {

// Of the calling thread; never another thread's, not even after this one has ended (the address of
// a thread's state is). Not 0.
uint64_t ThreadNumber();

struct RingSlot {
  enum class State : uint8_t { kIdle, kOpen, kLeased };

  RingCore* ring = nullptr;
  WorkspaceCore* core = nullptr;
  Holders<StdSync> leases;
  uint64_t generation = 0;  // written before the slot is open
  bool record = false;      // the batch is to be recorded
  int number = 0;           // of a temporary slot: at least the ring's
  bool temporary = false;
  // Of the thread that has it open:
  uint64_t adopted = 0;  // version of what was learned
  int batches_without_spill = 0;
  // Guarded by the ring's lock:
  State state = State::kIdle;
  bool kept = false;    // said so, or its reader came back for more
  uint64_t thread = 0;  // that has it open, or said Keep()
  uint64_t reader = 0;  // the thread that took it out of `channel`
  const void* channel = nullptr;
  std::string tag;
  RingSlot* next_idle = nullptr;
  WorkspaceStats counted;  // what of the core's statistics is in the ring's
};

class RingCore {
 public:
  enum class Full : uint8_t { kWait, kRefuse };

  static RingCore* New(std::string id, WorkspaceConfig config, Device device);

  // Null: full and `full` is kRefuse, or stopped. The slot is the caller's to enter or to return.
  RingSlot* Acquire(Full full, const std::stop_token& stop);
  // The slot was not entered, or its cycle has ended.
  void Return(RingSlot* slot) noexcept;
  // Begins the slot's cycle on this thread. Throws; then the slot was returned.
  void Enter(RingSlot* slot, internal::ScopeToken* token);
  // Ends the scope and leaves one lease. Throws by ScopeToken::Close(), nothing changed then.
  void Commit(RingSlot* slot, std::string_view tag, internal::ScopeToken* token);
  // The last lease is gone.
  void EndLease(RingSlot* slot) noexcept;
  void Keep(RingSlot* slot, std::string_view tag);
  // This thread took the leased slot out of a channel.
  void Take(RingSlot* slot, const void* channel) noexcept;
  // It comes to the channel for more: what it took there before and is still leased is kept. Throws
  // like Keep when ring_max_kept is exceeded.
  void ComeBack(const void* channel);
  // The RingWorkspace is gone.
  void Abandon() noexcept;

  void Initialize();
  void Trim();
  void Destroy();
  RingStats stats();
  std::string Dump();
  uint64_t generation();

  const std::string id;
  const WorkspaceConfig config;
  const Device device;

 private:
  // Gives its memory back once no buffer of it is left.
  struct SlotDeleter {
    void operator()(RingSlot* slot) const noexcept;
  };
  using SlotPointer = std::unique_ptr<RingSlot, SlotDeleter>;

  RingCore(std::string id, WorkspaceConfig config, Device device);
  ~RingCore() = default;

  SlotPointer NewSlot(int number, bool temporary) const;
  RingSlot* MakeTemporary(std::unique_lock<std::mutex>& lock);
  // Of slots that were removed; the ring may be gone after it.
  void Free(RingSlot* chain) noexcept;
  void Leave() noexcept {
    if (holders_.Leave()) delete this;
  }
  void MakePlan(const WantedPlan& wanted, absl::Span<const LifetimeBuffer> record) noexcept;
  void Follow(RingSlot* slot, size_t bytes, const LearnedCycle* learned, uint64_t version) noexcept;
  void FollowAll(RingSlot* chain, size_t bytes, const LearnedCycle* learned,
                 uint64_t version) noexcept;

  // These need mutex_ held.
  bool Wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop);
  bool TooManyKept() const {
    return config.ring_max_kept > 0 && leased_ > config.ring_max_kept &&
           CountKept() > config.ring_max_kept;
  }
  [[noreturn]] void ThrowTooManyKept() const;
  void ThrowIfOnlyThisThreadCouldRelease() const;
  // Whether a slot can be had now.
  bool is_full() const { return (idle_ == nullptr && !may_take_temporary()) || TooManyKept(); }
  // Whether only somebody who keeps slots can end that.
  bool is_stuck() const { return all_kept() || TooManyKept(); }
  bool may_take_temporary() const {
    return config.policy_ring_full == RingFullPolicy::kSpill &&
           (config.ring_max_temporary == 0 || temporary_ < config.ring_max_temporary);
  }
  bool all_kept() const { return kept_ == static_cast<int>(slots_.size()); }
  bool IsKept(const RingSlot& slot) const;
  int CountKept() const;
  void Mark(RingSlot* slot, uint64_t thread);
  void CountStatistics(RingSlot* slot);
  RingSlot* TakeOutdated();
  void PushIdle(RingSlot* slot);
  void Remove(RingSlot* slot, RingSlot** chain);
  std::string Describe(const RingSlot& slot) const;
  std::string DescribeTaken() const;

  // The RingWorkspace, each slot, and each producer that waits.
  Holders<StdSync> holders_;

  std::mutex mutex_;
  std::condition_variable_any changed_;  // a slot was freed, or what a wait depends on changed
  // Guarded by mutex_:
  std::vector<SlotPointer> slots_;  // temporary ones at the end
  RingSlot* idle_ = nullptr;        // a stack
  bool idle_outdated_ = false;      // some of them follow an older version
  RingLearning learning_;
  RingStats stats_;
  uint64_t generation_ = 0;
  int temporary_ = 0;  // those being made included
  int being_made_ = 0;
  int open_ = 0;
  int leased_ = 0;
  int kept_ = 0;           // marked ones
  uint64_t returned_ = 0;  // slots, ever
  int waiters_ = 0;
  bool gone_ = false;

  // Slots are being given memory: what one lacks the Reclaimer may not take from its neighbours.
  class Growing {
   public:
    explicit Growing(const RingCore& ring) : ring_(ring) { ++ring_.growing_; }
    ~Growing() { --ring_.growing_; }

   private:
    const RingCore& ring_;
  };
  mutable std::atomic<int> growing_{0};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RING_CORE_H_
