// RingSlotTable: who has which slot of a ring, since which generation, and who keeps too many.
//
// A slot is idle, open (its batch is made) or leased, and the slots that are idle are on the shelf.
// A leased slot is kept when a lease of it said so, when its reader came back to the channel it was
// popped from, or when N later slots were opened, N being the ring's number.
//
// Ownership: it has the slots; one that it removes is the caller's.
// Threads: one at a time (the ring's lock). Nothing here waits or takes another lock. Cost:
// constant, but O(slots) where many are leased and ring_max_kept is set, and where messages are
// made.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RING_SLOT_TABLE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RING_SLOT_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/ring_sharing.h"
#include "tidepool/memory/workspace/ring_slot.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

namespace internal {
extern thread_local constinit uint64_t thread_number;  // 0: none yet
uint64_t NumberThisThread();
}  // namespace internal

// Of the calling thread; never another thread's, not even after this one has ended (the address of
// a thread's state is). Not 0.
inline uint64_t ThreadNumber() {
  const uint64_t number = internal::thread_number;
  return number != 0 ? number : internal::NumberThisThread();
}

class RingSlotTable {
 public:
  // `id` and `config` are the ring's and outlive the table.
  RingSlotTable(const std::string& id, const WorkspaceConfig& config) : id_(id), config_(config) {
    slots_.reserve(static_cast<size_t>(config.ring_slots));
  }

  // ---- Slots come. One is announced, made without the lock, and added, or could not be made.

  // Its number. A temporary one counts from here on. Throws std::bad_alloc; nothing is changed
  // then.
  int Announce(bool temporary);
  // It is the caller's, like one that was taken from the shelf.
  RingSlot* Add(std::unique_ptr<RingSlot> slot) noexcept;
  void CannotAdd(bool temporary) noexcept;

  // ---- Opening.

  // No slot can be had now: none is idle and none may be made, or too many are kept.
  bool is_full() const { return (shelf_.empty() && !may_add_temporary()) || too_many_kept(); }
  // Only who keeps slots can end that: who has the others open waits for a slot.
  bool is_stuck() const {
    return kept_ + open_waiting_ == static_cast<int>(slots_.size()) || too_many_kept();
  }
  // No batch can come before a slot is released.
  bool is_stuck_for_readers() const {
    return is_full() && kept_ == leased_ && open_waiting_ == open_;
  }
  bool too_many_kept() const {
    return config_.ring_max_kept > 0 && leased_ > config_.ring_max_kept &&
           CountKept() > config_.ring_max_kept;
  }
  // Of a ring that is not full; null: a temporary one is to be made.
  RingSlot* TakeIdle() noexcept { return shelf_.Take(); }
  // By this thread. The batch gets the next generation.
  void Open(RingSlot* slot) noexcept {
    slot->standing.state = RingSlot::State::kOpen;
    slot->standing.thread = ThreadNumber();
    slot->SetGeneration(++generation_);
    ++open_;
  }

  // Before TakeBack() of a slot that was opened, and whose batch did not begin: its generation is
  // the next one's, unless a later one was opened meanwhile.
  void Unopen(RingSlot* slot) noexcept {
    if (generation_ == slot->generation()) --generation_;
    slot->RestoreGeneration();
  }

  // This thread begins or ends to wait for a slot. O(slots).
  void SetWaiting(bool waits) noexcept;

  // ---- Leases.

  void Lease(RingSlot* slot, std::string_view tag) noexcept {
    slot->standing.state = RingSlot::State::kLeased;
    slot->standing.thread = 0;
    --open_;
    ++leased_;
    if (!tag.empty()) SetTag(slot, tag);
  }
  // The slot is idle again; true when it was open. Whoever has removed slots frees them.
  bool TakeBack(RingSlot* slot, RingSlot** removed) noexcept {
    RingSlot::Standing& standing = slot->standing;
    const bool was_open = standing.state == RingSlot::State::kOpen;
    was_open ? --open_ : --leased_;
    if (standing.kept) --kept_;
    standing.state = RingSlot::State::kIdle;
    standing.kept = standing.thread_waits = false;
    standing.thread = standing.reader = 0;
    standing.channel = nullptr;
    standing.tag.clear();
    if (slot->temporary || !shelf_.PutBack(slot)) Remove(slot, removed);
    return was_open;
  }
  // This thread took the leased slot out of a channel.
  void SetReader(RingSlot* slot, const void* channel) noexcept;
  // This thread comes to the channel for more: true when slots are kept by that.
  bool KeepReadersSlots(const void* channel) noexcept;
  // Throws kResourceExhausted when too many would be kept, std::bad_alloc; nothing is changed then.
  void Keep(RingSlot* slot, std::string_view tag);

  // ---- The shelf as a whole.

  // As a chain, those that follow another version and are to follow this one while they are idle.
  RingSlot* TakeOutdated(const Lesson& lesson) noexcept {
    return shelf_.TakeWhere([&](const RingSlot& slot) {
      return !slot.Follows(lesson.version) && slot.FollowsIdle(lesson, generation_);
    });
  }
  // Those that ever had a batch: the others have nothing.
  RingSlot* TakeAllUsed() noexcept {
    return shelf_.TakeWhere([](const RingSlot& slot) { return slot.generation() != 0; });
  }
  RingSlot* TakeAllIdle() noexcept {
    return shelf_.TakeWhere([](const RingSlot&) { return true; });
  }
  void PutBack(RingSlot* chain, RingSlot** removed) noexcept;
  // The ring is gone: slots that come back are removed, idle ones now.
  void Close(RingSlot** removed) noexcept;
  bool is_closed() const { return shelf_.is_closed(); }

  // ---- What it is like.

  uint64_t generation() const { return generation_; }
  int idle() const { return static_cast<int>(slots_.size()) - open_ - leased_; }
  int open() const { return open_; }
  int leased() const { return leased_; }
  int CountKept() const;
  size_t size() const { return slots_.size(); }
  const RingSlot& operator[](size_t i) const { return *slots_[i]; }
  // Of a full ring: every slot in the way is this thread's own, or one's that waits for a slot.
  bool OnlyWhoWaitsCouldRelease() const;
  std::string Describe(const RingSlot& slot) const;
  std::string DescribeTaken() const;  // those that are not idle
  // `when`: where it is an error, " and none was released in 10 ms".
  [[noreturn]] void ThrowTooManyKept(const std::string& when = "") const;

 private:
  bool may_add_temporary() const {
    return config_.policy_ring_full == RingFullPolicy::kSpill &&
           (config_.ring_max_temporary == 0 || temporary_ < config_.ring_max_temporary);
  }
  bool IsKept(const RingSlot& slot) const;
  void SetTag(RingSlot* slot, std::string_view tag) noexcept;
  void Mark(RingSlot* slot, uint64_t thread) noexcept;
  void Remove(RingSlot* slot, RingSlot** removed) noexcept;

  const std::string& id_;
  const WorkspaceConfig& config_;
  std::vector<std::unique_ptr<RingSlot>> slots_;  // temporary ones at the end
  SlotShelf<StdSync, RingSlot> shelf_;
  uint64_t generation_ = 0;
  int being_made_ = 0;
  int temporary_ = 0;  // those being made included
  int open_ = 0;
  int leased_ = 0;
  int kept_ = 0;          // marked ones
  int open_waiting_ = 0;  // open on threads that wait for a slot
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RING_SLOT_TABLE_H_
