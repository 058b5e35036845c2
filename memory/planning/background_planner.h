// Placement search that costs its users nothing: one thread of the lowest priority per process.
//
//   std::shared_ptr<PlanTicket> ticket =
//       BackgroundPlanner::Shared().Submit(buffers, /*alignment=*/64, {.peak_to_beat = plan.peak});
//   ...
//   if (ticket->ready()) {                                          // once a cycle: one load
//     if (std::optional<Placement> better = ticket->Take()) plan = *std::move(better);
//     ticket.reset();
//   }
//
// The thread starts with the first problem, sleeps when there are none, and ends with Stop or the
// process. It runs under SCHED_IDLE where there is such a thing (else nice 19), so that threads
// that compute always go first; budgets are therefore in processor time, and on a busy machine a
// ticket may take long. Problems with few buffers go first, except that every fourth turn is the
// oldest's. Submitters never wait for the thread: problems are handed over without a lock, and what
// the thread is done with is handed back, so that it frees only memory that it has taken itself and
// nobody else frees that. (Preempted inside of malloc it holds the lock of its own arena. With more
// threads than arenas, eight for each processor by default, an arena may be another thread's too.)
//
// fork(): a child has no such thread. Shared() gives it a planner of its own; see there.
#ifndef TIDEPOOL_MEMORY_PLANNING_BACKGROUND_PLANNER_H_
#define TIDEPOOL_MEMORY_PLANNING_BACKGROUND_PLANNER_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "absl/time/time.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

struct BackgroundPlanOptions {
  // Processor time of the search.
  absl::Duration budget = absl::Seconds(2);
  // Nodes of the search (SearchOptions::node_budget); 0: no limit.
  int64_t node_budget = 0;
  // The search ends at this peak, in bytes; 0: at the lower bound.
  int64_t capacity = 0;
  // Only a smaller peak, in bytes, counts as improved; 0: any placement.
  int64_t peak_to_beat = 0;
};

// What planner and tickets share, for as long as one of them lives.
struct PlannerHandover {
  std::atomic<int64_t> load{0};                     // buffers of tickets that are not final
  std::atomic<class PlanTicket*> retired{nullptr};  // the thread is done with them
};

// What became of a submission. Cancelled when the last reference given to its submitter goes. Any
// thread.
class PlanTicket {
 public:
  enum class State : int32_t {
    kQueued,
    kPlanning,
    // Final ones:
    kImproved,     // Take gives the placement, once
    kNotImproved,  // nothing below peak_to_beat was found
    kCancelled,
    kRefused,  // too much to plan already, no thread to be had, or the process is ending
    kFailed,   // for example without memory
  };

  PlanTicket(const PlanTicket&) = delete;
  PlanTicket& operator=(const PlanTicket&) = delete;

  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  // Whether the state is final. One atomic load.
  bool ready() const noexcept { return state() >= State::kImproved; }

  // The placement if there is a better one that was not taken yet; never waits.
  std::optional<Placement> Take() noexcept;

  // Gives the problem up; what is ready already stays. Never waits: a search under way ends a
  // little later (search_planner.h).
  void Cancel() noexcept;

  // Until ready. For tests and tools; not in a child after fork().
  void Wait() const noexcept;

 private:
  friend class BackgroundPlanner;
  PlanTicket() = default;
  // Final from `from`; false if it is in another state.
  bool Finish(State from, State to) noexcept;
  // Frees what the thread is done with. Not on the thread.
  static void CollectRetired(PlannerHandover& handover) noexcept;

  std::atomic<State> state_{State::kQueued};
  std::atomic<bool> is_taken_{false};
  // Read by the thread while kPlanning, else its submitters'. Made by its submitter, as all of it.
  std::vector<LifetimeBuffer> buffers_;
  Placement placement_;  // of full size from the start: the thread fills it in
  // Fixed before the ticket is shared.
  std::shared_ptr<PlannerHandover> handover_;
  int64_t num_buffers_ = 0;
  int64_t alignment_ = 1;
  BackgroundPlanOptions options_;
  std::stop_source stop_;
  // Of the queue it is in, or of those that are retired.
  PlanTicket* next_ = nullptr;
  std::shared_ptr<PlanTicket> self_;
};

class BackgroundPlanner {
 public:
  // Of all problems that are queued or planned: further ones are refused.
  static constexpr int64_t kMostBuffers = int64_t{1} << 18;
  static constexpr int64_t kMostTickets = 4096;

  // The process's own. Never destroyed, so that static objects may use it to the end; stopped at
  // exit, after which it refuses. A child of fork() gets a new one; tickets from before the fork
  // stay unready there.
  static BackgroundPlanner& Shared();

  BackgroundPlanner();
  // Stops. (An own planner must be stopped before fork(): the child cannot end its thread.)
  ~BackgroundPlanner();
  BackgroundPlanner(const BackgroundPlanner&) = delete;
  BackgroundPlanner& operator=(const BackgroundPlanner&) = delete;

  // Throws what CheckPlacementProblem throws, and Error(kInvalidArgument) for negative options;
  // every other failure is the ticket's. O(number of buffers).
  std::shared_ptr<PlanTicket> Submit(std::vector<LifetimeBuffer> buffers, int64_t alignment,
                                     const BackgroundPlanOptions& options);

  // Cancels all tickets and ends the thread; the next Submit starts another. Waits for a search
  // under way to notice.
  void Stop();

 private:
  static void StopSharedAtExit();
  static void ForgetSharedInChild();
  static const int registered_at_start;

  bool StartThread();
  void StopLocked();
  static void* RunThread(void* planner);
  void ServeQueue();
  void TakeInbox();
  PlanTicket* NextOfQueue();
  void Plan(PlanTicket& ticket) noexcept;
  void Retire(PlanTicket* ticket) noexcept;

  std::mutex mutex_;  // of submitters; never taken by the thread, which may be starved of time
  bool is_exiting_ = false;
  bool has_thread_ = false;
  pthread_t thread_{};
  std::stop_source halt_;

  // Shared with the thread.
  std::atomic<PlanTicket*> inbox_{nullptr};  // newest first
  std::atomic<uint32_t> num_signals_{0};
  std::atomic<int64_t> num_tickets_{0};
  const std::shared_ptr<PlannerHandover> handover_;

  // The thread's, or Stop's after it.
  PlanTicket* queue_ = nullptr;  // oldest first
  uint32_t num_turns_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_BACKGROUND_PLANNER_H_
