// RingWorkspace: memory for batches that are made on one thread and used on another.
//
//   RingWorkspace ring("prefetch", WorkspaceConfig::Ring(4));
//   // producer
//   while (std::optional<RingSlotScope> slot = RingSlotScope::Open(ring, stop)) {
//     Batch batch = Decode(...);           // what is allocated on this thread lives in the slot
//     batch.lease = slot->Commit();        // ends the scope; the batch's arrays stay
//     queue.Push(std::move(batch));
//   }
//   // consumer, on any thread, with no workspace open
//   Use(queue.Pop());                      // the lease goes with the batch; then the slot is free
//
// A ring has N slots of one size. A slot is open while its batch is made, leased from Commit() to
// the release of the last copy of its lease, and idle otherwise. Slots are reused in any order, the
// one released last first: its memory is warm. Nothing is ever overwritten under a reader: the slot
// of a batch that is kept is not reused, and an array whose lease is gone is refused wherever arrays
// are used, with both generations in the message. Generations number the batches of the ring. An
// opening that throws takes none; a number is left out only where another slot was opened meanwhile.
//
// Slots learn together (plan_learner.h). A batch that does not fit spills and the slots grow: those
// that had one of the last 1,024 batches while they are idle, the others when they are opened next.
// A slot that never had a batch has no pages (but for initial_size), only its records. One that has
// pages on the host costs two memory mappings, and one more for each large request outside of them:
// Linux allows a process vm.max_map_count of these (65,530), so that about 32,000 slots can have a
// batch at a time. Beyond that requests are OutOfMemoryErrors, for other parts of the process too.
// When all slots are taken, opening waits or takes a temporary slot (policy_ring_full). A slot is
// kept when a lease of it said Keep(), when its reader came back to a RingChannel for more, or when
// N later slots were opened: then a ring without leases would have overwritten it.
//
// Keeping too much is an error that names the ring, the slots and the limit. More kept slots than
// ring_max_kept: Keep() and a reader's Pop() throw at once, and go on once enough is released.
// Producers cannot help it: for them the ring is full until then. With ring_max_kept 0 Keep() throws
// for the last slot; a reader may come back while every slot is kept, as others may be about to
// release what it has passed on. Whoever waits, a producer in opening or a reader in Pop(), gets the
// error when every slot is kept or open on a thread that waits for another (a producer: also when
// more than ring_max_kept are kept) and none is released for ring_stall_limit_ms; opening throws at
// once when only threads that wait for a slot could release one.
//
// An array that is alive when its batch is discarded or its last lease goes is leaked: counted, told to
// the sinks (cycle_detector.h) with the batch's generation, by the thread that ends the batch, and in
// guard mode an error: the next opening throws it, once, as a lease that goes cannot throw. What an
// exception takes along with a slot that is open is counted only.
//
// Ownership: the ring owns the slots. Destroying it while slots are open or leased is allowed: their
// memory stays valid, and is given back when the last lease goes.
// Threads: everything may be called from any thread at any time, several producers and consumers
// and a monitor's stats() and Dump() included; one RingSlotScope belongs to the thread that made it.
// Distinct leases may be used concurrently, one lease by one thread at a time. The accessors take the
// ring's lock for a moment, stats() and Dump() for O(slots): nothing long ever happens under it.
// Cost: open, commit and release take an uncontended lock each, about 0.2 microseconds in all;
// requests cost what they cost in a Workspace, without a lock. Once learned, no system call, page
// fault or allocation, but for slots that are opened for the first time in long, which take what
// was learned since; threads are woken only where one waits.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RING_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tidepool/memory/device.h"
#include "tidepool/memory/workspace/workspace_config.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {

class RingCore;
class RingSlot;
namespace internal {
class RingReaders;
}

// Since the ring was made, and of this moment.
struct RingStats {
  uint64_t opened = 0;                // slots, temporary ones included; what throws opens none
  uint64_t committed = 0;             // batches
  uint64_t discarded = 0;             // closed without a commit, by an exception or not
  uint64_t temporary = 0;             // opened outside the ring because it was full
  uint64_t refused = 0;               // TryOpen on a full ring
  uint64_t waits = 0;                 // opens that had to wait
  uint64_t wait_nanoseconds = 0;      // of all of these together
  uint64_t wake_ups = 0;              // signals sent to waiting producers
  uint64_t hits = 0;                  // requests of committed batches served from slots
  uint64_t misses = 0;                // requests a plan existed for but could not be followed
  uint64_t spills = 0;                // requests served outside, learning included
  uint64_t spilled_bytes = 0;         // of these requests
  uint64_t leaked_arrays = 0;         // alive when discarded or when the last lease went
  uint64_t plans = 0;                 // made so far
  size_t planned_peak_bytes = 0;      // of the last plan
  size_t live_lower_bound_bytes = 0;  // of the batch it was made from
  size_t slot_bytes = 0;              // learned; a slot follows when it is opened
  int idle = 0;                       // slots now
  int open = 0;                       // batches that are being made
  int leased = 0;                     // kept ones included
  int kept = 0;                       // as above
};

// Keeps a slot. Copies share it; the last one to go frees it, on whichever thread. It has to go
// after the batch's arrays, which Leased (below) sees to. Empty when default-constructed or moved
// from.
class SlotLease {
 public:
  SlotLease() = default;
  SlotLease(const SlotLease& other) noexcept;
  SlotLease(SlotLease&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
  // What it held is released with `other`.
  SlotLease& operator=(SlotLease other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~SlotLease() { Release(); }

  // Lets go now; empty afterwards. Of the last copy the slot is free.
  void Release() noexcept;

  // Whether it keeps a slot, and which of the ring's batches.
  explicit operator bool() const { return slot_ != nullptr; }
  uint64_t generation() const;  // 0 when empty

  // Says that this thread holds on to the batch, and why (named in errors and Dump()). Throws
  // kResourceExhausted when more slots would be kept than the ring allows; then the slot is as
  // before. Throws kFailedPrecondition when empty.
  void Keep(std::string_view tag = {});

 private:
  friend class RingSlotScope;
  friend class internal::RingReaders;
  explicit SlotLease(RingSlot* slot) : slot_(slot) {}
  RingSlot* slot_ = nullptr;
};

// A batch with its lease: whether it is destroyed or assigned over, the old arrays go first, then
// their lease. A struct of a lease and arrays has the first by declaring the lease first; memberwise
// assignment drops the old lease before the old arrays, which then count as leaked.
template <typename T>
struct Leased {
  SlotLease lease;  // first, so that it goes last
  T value;          // the batch

  Leased() = default;
  Leased(SlotLease slot_lease, T batch) : lease(std::move(slot_lease)), value(std::move(batch)) {}
  Leased(const Leased&) = default;
  Leased(Leased&&) = default;
  ~Leased() = default;
  // What was here goes with `other`, which is destroyed as a whole.
  Leased& operator=(Leased other) noexcept(std::is_nothrow_swappable_v<T>) {
    using std::swap;
    swap(value, other.value);
    swap(lease, other.lease);
    return *this;
  }
};

class RingWorkspace {
 public:
  // Throws kInvalidArgument when the configuration is illegal or not a ring's, OutOfMemoryError when
  // initial_size cannot be had for each slot.
  explicit RingWorkspace(std::string id, WorkspaceConfig config, Device device = Host());
  // Open slots are a mistake that is reported on stderr; leased ones are not. Producers that wait
  // get kFailedPrecondition.
  ~RingWorkspace();
  RingWorkspace(const RingWorkspace&) = delete;
  RingWorkspace& operator=(const RingWorkspace&) = delete;

  // As it was made; `slots` are the configured ones. And what there is of it now.
  const std::string& id() const;
  const WorkspaceConfig& config() const;
  Device device() const;
  int slots() const;
  size_t slot_size() const;     // learned bytes of a slot
  uint64_t generation() const;  // of the slot opened last; 0 before the first
  RingStats stats() const;
  std::string Dump() const;  // one line per slot

  // Learns now from the batches seen (kOverTime).
  void Initialize();
  // Gives back what idle slots do not need for batches like the recent ones, and all but the initial size of those that
  // had none of the last 1,024 batches: they take it again when they are opened. In a callback of the
  // Reclaimer or of memory events, slots that are just being reclaimed are left out, and Destroy()
  // throws because of them.
  void Trim();
  // Gives all pages back and forgets what was learned. Throws kFailedPrecondition naming the slots
  // that are open or leased. Initial pages are taken again when a slot is opened.
  void Destroy();

  RingCore* core() const { return core_; }  // for the runtime

 private:
  RingCore* core_;
};

// A batch being made: allocations of this thread go to the slot, from here to Commit() or the end of
// the block. Without Commit() the batch is discarded and the slot is free again.
class [[nodiscard]] RingSlotScope {
 public:
  // Waits on a full ring. Throws kResourceExhausted as told above, OutOfMemoryError when initial or
  // temporary memory cannot be had, in guard mode kFailedPrecondition with the ring's first finding.
  [[nodiscard]] explicit RingSlotScope(RingWorkspace& ring);
  // As the constructor; empty when `stop` is requested before or while it waits.
  static std::optional<RingSlotScope> Open(RingWorkspace& ring, const std::stop_token& stop);
  // Empty instead of waiting.
  static std::optional<RingSlotScope> TryOpen(RingWorkspace& ring);

  RingSlotScope(RingSlotScope&& other) noexcept
      : slot_(std::exchange(other.slot_, nullptr)),
        generation_(other.generation_),
        token_(std::move(other.token_)) {}
  RingSlotScope& operator=(RingSlotScope&&) = delete;
  ~RingSlotScope();

  // Ends the scope; the arrays that are alive are the batch. `tag` names it in errors and Dump().
  // Throws kFailedPrecondition when the scope has ended, is not the innermost or belongs to another
  // thread; it is unchanged then.
  [[nodiscard]] SlotLease Commit(std::string_view tag = {});
  // Ends the scope and frees the slot now. Throws like Commit().
  void Discard();
  // 0 once committed or discarded, by the end of its thread too.
  uint64_t generation() const {
    return slot_ != nullptr && !token_.ended_with_thread() ? generation_ : 0;
  }

 private:
  explicit RingSlotScope(RingSlot* slot);
  RingSlot* slot_ = nullptr;  // not ours any more once its thread has ended
  uint64_t generation_ = 0;
  internal::ScopeToken token_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RING_H_
