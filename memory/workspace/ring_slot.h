// RingSlot: one slot of a ring; for rings only.
//
// A slot is a workspace core of its own, so plans, spills, guard mode and the ledger are those of
// workspaces. What is special is its cycle: it begins on the producer's thread, is handed over at
// the commit, belongs to no thread while the batch is leased, and ends on whichever thread releases
// the last lease. And it does not learn: it follows what the ring has learned. This class is all
// that a ring knows of WorkspaceCore.
//
// Ownership: the core outlives the slot while buffers of it are left.
// Threads: as each part says. The table's part is for RingSlotTable alone.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RING_SLOT_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RING_SLOT_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "tidepool/memory/device.h"
#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/cycle_detector.h"
#include "tidepool/memory/workspace/plan_learner.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_sharing.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

class WorkspaceCore;

class RingSlot {
 public:
  // What all slots of a ring have in common.
  struct Ring {
    RingCore* core;
    const std::string& id;
    const WorkspaceConfig& config;
    Device device;
    // Slots that are being given memory: what one lacks the Reclaimer may not take from its
    // neighbours.
    std::atomic<int> growing{0};
    FirstFinding first_finding;
  };

  // `number` names it in messages. Throws OutOfMemoryError when its initial memory cannot be had.
  RingSlot(Ring& ring, int number, bool temporary);
  ~RingSlot();
  RingSlot(const RingSlot&) = delete;
  RingSlot& operator=(const RingSlot&) = delete;

  RingCore& ring() const { return *ring_.core; }
  // Of the batch; written before the slot is open.
  uint64_t generation() const { return generation_; }
  size_t size() const;
  size_t alignment() const;

  // ---- A batch, by the thread that makes it.

  // By the table, as the next one: of a batch that has not begun.
  void SetGeneration(uint64_t generation) noexcept {
    generation_before_ = std::exchange(generation_, generation);
    has_begun_.store(false, std::memory_order_relaxed);
  }
  // By the table: that batch did not begin.
  void RestoreGeneration() noexcept { generation_ = generation_before_; }
  // Begins its cycle. Throws what entering a workspace throws; the slot is as before then, but for
  // its generation.
  void Enter(internal::ScopeToken* token);
  // Whether that was done since the last SetGeneration(). Any thread.
  bool has_begun() const { return has_begun_.load(std::memory_order_relaxed); }
  bool is_open() const;
  // Ends the scope; what is alive is the batch, with one lease. What it tells of itself
  // stays until the lease ends. The token may close. `with_lifetimes`: these are told where there is memory for it.
  EndedCycle HandOver(internal::ScopeToken* token, bool with_lifetimes) noexcept;

  // By the thread whose lease was the last one: ends the cycle.
  void EndLease() noexcept;
  // Adds what was counted since the last call. By one of the threads above, with the ring's lock.
  void CountInto(RingStats* stats);
  // The same for a slot that was leased: nothing is requested meanwhile.
  void CountLeakedInto(RingStats* stats);

  // ---- Between batches, by a thread that has taken it from the shelf.

  bool Follows(uint64_t version) const { return followed_ == version; }
  // While it is idle. Memory for what was learned goes to slots that had one of the last batches,
  // so that a queue that is as deep again takes none; the others take it when they are opened, as
  // of many slots most may never be. What one has beyond it goes at once. `newest`: the ring's
  // generation.
  static constexpr uint64_t kBatchesRecent = 1024;
  bool FollowsIdle(const Lesson& lesson, uint64_t newest) const {
    return IsRecent(newest) || size() > lesson.bytes;
  }
  bool IsRecent(uint64_t newest) const {
    return generation_ != 0 && newest - generation_ < kBatchesRecent;
  }
  // Takes pages and plan. Without the memory for it, which false says, the batch spills and the slot
  // tries again when it is opened next. Where it follows already, as Expect.
  bool Follow(const Lesson& lesson) noexcept;
  // The next batch is expected to be `next`, of the lesson it follows. Gives back blocks as GiveBackOldBlocks does.
  void Expect(const LearnedCycle* next) noexcept;
  // Blocks that batches have not needed for a while.
  void GiveBackOldBlocks() noexcept;
  // So many batches have gone through the ring while it was idle.
  void StayedIdle(int batches) noexcept { batches_without_spill_ += batches; }
  // It is as the lesson says by itself.
  void SetFollows(uint64_t version) { followed_ = version; }
  void GiveBackBlocks();
  // As a slot that never had a batch, until it is opened again. Throws as Maintenance does.
  void GiveBackLearned();
  // Gives back everything; initial pages come again with the next cycle.
  void GiveBackPages();

  Holders<StdSync> leases;

  // ---- The table's: who has it. Guarded by the ring's lock.

  enum class State : uint8_t { kIdle, kOpen, kLeased };
  struct Standing {
    State state = State::kIdle;
    bool kept = false;          // said so, or its reader came back for more
    uint64_t thread = 0;        // that has it open, or said Keep()
    bool thread_waits = false;  // for a slot
    uint64_t reader = 0;        // the thread that took it out of `channel`
    const void* channel = nullptr;
    std::string tag;
  };
  Standing standing;
  StdSync::Plain<RingSlot*> next_on_shelf{nullptr};
  size_t place = 0;  // in the table

  const int number;
  const bool temporary;  // outside the ring's own ones: it goes when it is released

 private:
  Ring& ring_;
  WorkspaceCore* core_;
  uint64_t generation_ = 0;
  uint64_t generation_before_ = 0;
  std::atomic<bool> has_begun_{false};
  uint64_t followed_ = 0;  // the version of the lesson
  int batches_without_spill_ = 0;
  bool may_have_blocks_ = false;  // for spills
  RingStats counted_;             // what of the core's counters is in the ring's
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RING_SLOT_H_
