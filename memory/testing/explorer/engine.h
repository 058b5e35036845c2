// Runs executions: threads as fibers, one step at a time, each switch a choice.
//
// A step is one operation on shared state. A thread announces its next step and is then held until
// the engine chooses it, so that at each choice the next step of every thread is known; what a
// thread does between two steps concerns nobody else (plain accesses are checked for races by
// clocks, which does not depend on when they run).
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_ENGINE_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/testing/explorer/arena.h"
#include "tidepool/memory/testing/explorer/choices.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/fiber.h"
#include "tidepool/memory/testing/explorer/lifetimes.h"
#include "tidepool/memory/testing/explorer/sites.h"
#include "tidepool/memory/testing/explorer/trace.h"
#include "tidepool/memory/testing/explorer/unwatched_memory.h"
#include "tidepool/memory/testing/explorer/view.h"

namespace tidepool::explorer::internal {

// In front of what Sync::New made.
struct NewBlockHeader;

// Of what is not deterministic.
inline constexpr char kDependsOnSomethingElse[] =
    "the body, or what it runs, depends on something that the explorer does not choose";

// What two threads' next steps have to do with each other.
struct Step {
  const void* object = nullptr;
  bool writes = false;
  bool sequential = false;  // seq_cst
  bool fence = false;
  bool everything = false;  // order matters against any other step
  bool locks = false;       // needs the Mutex or SharedMutex `object`, ...
  bool shared = false;      // ... together with others, ...
  bool held = false;        // ... which another thread holds
};

// Whether doing a before b ends in the same state as b before a.
inline bool Independent(const Step& a, const Step& b) {
  if (a.everything || b.everything) return false;
  if (a.sequential && b.sequential && (a.fence || b.fence || a.object == b.object)) return false;
  return a.object != b.object || a.fence || b.fence || !(a.writes || b.writes);
}

// What the memory model knows of a thread.
struct ThreadMemory {
  View view;                           // what it has seen
  View pending;                        // what an acquire fence would make it see
  const Snapshot* released = nullptr;  // what it had seen at its last release fence
  // How often it waited for others at a yield: it reads no old store again after that.
  uint32_t yields = 0;
  // Since its last yield: whether it did more than read atomic variables, and whether it read a
  // store that was not the newest.
  bool wrote = true;
  bool read_old = false;
  // Since it last did more than read: whether it read what cannot be read any more when it has
  // changed (a lock that was taken, by try_lock; in the order of seq_cst operations).
  bool read_newest = false;
};

class Engine {
 public:
  Engine(const Options& options, Choices& choices, Sites* sites);
  ~Engine();

  // The engine that runs the calling code; null outside of an exploration.
  static Engine* Running() { return running_; }
  // Ends the program with a message when there is none.
  static Engine& Get();

  // --- For the search.
  // At most `preemptions` (-1: no bound); with `reduce`, sleep sets.
  void set_bound(int preemptions, bool reduce);
  void set_trace(Trace* trace) { trace_ = trace; }
  // Runs one execution; true if nothing failed.
  bool Run(absl::FunctionRef<void(Execution&)> body);

  FailureKind failure() const { return failure_; }
  const std::string& message() const { return message_; }
  int64_t steps() const { return steps_; }
  int preemptions() const { return preemptions_; }
  bool pruned() const { return pruned_; }
  bool anyone_yielded() const { return anyone_yielded_; }
  // Whether the bound kept any execution out since set_bound, and whether Options::yields did.
  bool bound_mattered() const { return bound_mattered_; }
  bool yields_mattered() const { return yields_mattered_; }
  // Whether Options::stores_in_order did.
  bool order_mattered() const { return order_mattered_; }

  // --- For the operations of the policy, called from explored code.
  // Announces a step and returns when it is the calling thread's turn.
  void Announce(const Step& step) {
    if (slot_ == kBody) return;
    AnnounceInThread(step);
  }
  // The calling thread cannot go on: others run until Unblock names it.
  void Block();
  void Unblock(int slot) { blocked_ &= ~(1u << slot); }
  // As above, for all threads that wait to lock `mutex`; Held is the opposite, but for those that would
  // share a mutex that is `shared`.
  void MutexFreed(const void* mutex);
  void MutexHeld(const void* mutex, bool shared = false);
  void Yield();
  // `count` > 0; choices with one way are none.
  uint32_t Choose(uint32_t count) { return count == 1 ? 0 : choices_.Choose(count); }
  // Of weak compare-exchanges and try_locks.
  bool may_fail_spuriously() const { return spurious_failures_ < options_.spurious_failures; }
  void CountSpuriousFailure() { ++spurious_failures_; }
  // Ends the execution: the caller's stack is left as it is. What `message` takes to return the
  // text is destroyed before.
  template <typename F>
  [[noreturn]] void Fail(FailureKind kind, F message) {
    SetFailure(kind, message());
    LeaveForEver();
  }

  int slot() const { return slot_; }
  ThreadMemory& memory() { return memories_[slot_]; }
  // An invariant looks at the state: nothing is a step.
  bool inspecting() const { return inspecting_; }
  View& sequential() { return sequential_; }
  Arena& arena() { return arena_; }
  const Options& options() const { return options_; }
  Trace* trace() { return trace_; }
  Sites* sites() { return sites_; }
  uint32_t NewIndex() {
    choices_.CountEvent();
    return kMaxSlots + variables_++;
  }
  uint32_t Clock() { return memory().view.at(slot_); }
  // What the calling thread has seen, for others to acquire. What it does next is not in it.
  const Snapshot* Release() {
    ThreadMemory& mine = memory();
    const Snapshot* snapshot = mine.view.Freeze(arena_);
    mine.view.Raise(slot_, snapshot->times[slot_] + 1);
    return snapshot;
  }
  // Whether what `slot` did at `clock` happened before what the calling thread does now.
  bool HappenedBefore(int slot, uint32_t clock) { return memory().view.at(slot) >= clock; }
  void Record(std::string text, const Where& where) {
    if (trace_ != nullptr) trace_->Add(slot_, std::move(text), where);
  }

  Lifetimes& lifetimes() { return lifetimes_; }
  // The members of what is made there are state of the loops of all threads.
  void AddUnwatched(const void* at, size_t bytes) { unwatched_.Add(at, bytes); }
  // Fails the execution unless `object`, where `id` was found, is alive.
  void CheckAlive(uint32_t id, const void* object, const char* kind, const char* what,
                  const Where& where) {
    if (!lifetimes_.IsAlive(id, object)) FailDead(object, kind, what, where);
  }
  // What Sync::New made, and where a Sync::Delete is going on.
  std::vector<NewBlockHeader*>& blocks() { return blocks_; }
  const Where& deleting_at() const { return deleting_at_; }
  void set_deleting_at(const Where& where) { deleting_at_ = where; }
  View& scratch() { return scratch_; }
  // A store, or what an update reads, had another place than the last one.
  void NoteStoreInOrder() { order_mattered_ |= !choices_.free_run(); }
  // The calling thread may not read an old store again, as it yielded.
  void NoteNoOldStore() { yields_mattered_ |= slots_[slot_].waited_unfairly; }

  // Whose stack ended just above `address`; -1: nobody's.
  int SlotBelowWhoseStackIs(const void* address) const {
    for (const Slot& slot : slots_) {
      if (slot.fiber != nullptr && slot.fiber->is_below(address)) return slot.number;
    }
    return -1;
  }

  // --- For Execution.
  // `bytes` of `argument` are the thread's own.
  void AddThread(void (*function)(void*), void* argument, size_t bytes);
  void AddEnd(void (*function)(void*), void* argument) { ends_.push_back({function, argument}); }
  void AddInvariant(void (*function)(void*), void* argument) {
    invariants_.push_back({function, argument});
  }
  void DestroyAtEnd(void (*destroy)(void*), void* object) { objects_.push_back({destroy, object}); }

 private:
  enum class Phase { kBody, kStart, kThreads, kEnd };
  struct Callback {
    void (*function)(void*);
    void* argument;
    void operator()() const { function(argument); }
  };
  struct Slot {
    Engine* engine = nullptr;
    int number = 0;
    std::unique_ptr<Fiber> fiber;
    Callback run;
    Step next;
    size_t run_bytes = 0;  // of run.argument
    bool running = false;  // has left frames on its stack
    // For fairness: who must take a step before it does, and who has since it yielded, or since the
    // first of `unfair_yields` in a row, in each of which it went on while others could.
    uint32_t waits_for = 0;
    uint32_t seen_stepping = 0;
    int unfair_yields = 0;
    bool waited_unfairly = false;
    int64_t yielded_at = -1;  // after how many steps
    // What it was like at its yields since it last did more than read.
    std::vector<uint64_t> states;
    uint64_t priority = 0;
  };

  static void FiberMain(void* slot);
  void RunSlot(int number);
  void RunBodyPhase();
  void Reset();
  void AnnounceInThread(const Step& step);
  bool RepeatsItself(Slot& slot);
  // Chooses who is next and switches there; returns when the caller is next.
  void SwitchToNext();
  // The slot that takes the next step, -1 when all have ended or the execution failed.
  int Next();
  uint32_t Enabled();
  // Whether all that can go on would share mutexes that others wait to have alone, as `behind` then says.
  bool WaitBehindWriters(uint32_t* behind) const;
  int Pick(const int* options, uint32_t count);
  void ChangePriorities();
  void TakeTurn(int number);
  void SwitchTo(int number);
  void SwitchToMain();
  [[noreturn]] void LeaveForEver();
  [[noreturn]] void FailDead(const void* object, const char* kind, const char* what,
                             const Where& where);
  void CheckInvariants();
  void SetFailure(FailureKind kind, std::string message);
  std::string Describe(uint32_t mask) const;
  void CheckLeaks();

  static constinit inline thread_local Engine* running_ = nullptr;

  const Options& options_;
  Choices& choices_;
  Sites* const sites_;
  Trace* trace_ = nullptr;
  Arena arena_;
  Fiber main_;
  Slot slots_[kMaxSlots];
  ThreadMemory memories_[kMaxSlots];
  View scratch_;
  View sequential_;  // what the total order of seq_cst operations has seen
  const absl::FunctionRef<void(Execution&)>* body_ = nullptr;

  Lifetimes lifetimes_;
  UnwatchedMemory unwatched_;
  std::vector<Callback> ends_, invariants_, objects_;
  std::vector<NewBlockHeader*> blocks_;
  Where deleting_at_;

  int preemption_bound_ = -1;
  bool reduce_ = false;
  bool bound_mattered_ = false;
  bool yields_mattered_ = false;
  bool order_mattered_ = false;

  // Of the execution.
  Phase phase_ = Phase::kBody;
  int slot_ = kBody;
  int thread_count_ = 0;
  uint32_t variables_ = 0;
  uint32_t unfinished_ = 0, blocked_ = 0, sleeping_ = 0;
  // At a yield: free to go on, waiting for any step of another thread, waiting for all others to
  // wait as well.
  uint32_t at_yield_ = 0, yielded_ = 0, parked_ = 0;
  bool anyone_yielded_ = false;
  bool anyone_shares_ = false;  // a SharedMutex, or is about to
  bool inspecting_ = false;
  bool step_taken_ = false;  // since the invariants were checked
  bool pruned_ = false;
  int preemptions_ = 0;
  int spurious_failures_ = 0;
  int64_t steps_ = 0;
  int64_t longest_ = 0;  // of all executions, for where priorities change
  std::vector<int64_t> changes_;
  FailureKind failure_ = FailureKind::kNone;
  std::string message_;
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_ENGINE_H_
