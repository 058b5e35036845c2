#include "tidepool/memory/planning/background_planner.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/plan_validator.h"
#include "tidepool/memory/planning/search_planner.h"

namespace tidepool {
namespace {

using State = PlanTicket::State;

// The tree search recurses: up to 3 MiB, several times that under a sanitizer. Address space only.
constexpr size_t kStackBytes = size_t{32} << 20;
constexpr uint32_t kTurnsUntilOldest = 4;

std::atomic<BackgroundPlanner*> shared_planner{nullptr};
std::atomic<bool> stops_at_exit{false};

// Of the calling thread.
void YieldToOthers() {
#ifdef SCHED_IDLE
  sched_param parameters{};
  if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &parameters) == 0) return;
#endif
#ifdef __linux__
  // On Linux, niceness is a thread's own.
  if (nice(19) == -1) return;
#endif
}

}  // namespace

std::optional<Placement> PlanTicket::Take() noexcept {
  if (state() != State::kImproved || is_taken_.exchange(true)) return std::nullopt;
  std::vector<LifetimeBuffer>().swap(buffers_);
  return std::move(placement_);
}

bool PlanTicket::Finish(State from, State to) noexcept {
  if (from == State::kQueued &&
      !state_.compare_exchange_strong(from, State::kPlanning, std::memory_order_acq_rel)) {
    return false;
  }
  handover_->load.fetch_sub(num_buffers_, std::memory_order_relaxed);
  state_.store(to, std::memory_order_release);
  state_.notify_all();
  return true;
}

void PlanTicket::Cancel() noexcept {
  stop_.request_stop();
  Finish(State::kQueued, State::kCancelled);
}

void PlanTicket::CollectRetired(PlannerHandover& handover) noexcept {
  if (handover.retired.load(std::memory_order_relaxed) == nullptr) return;
  PlanTicket* ticket = handover.retired.exchange(nullptr, std::memory_order_acquire);
  while (ticket != nullptr) {
    PlanTicket* const next = ticket->next_;
    const std::shared_ptr<PlanTicket> last = std::move(ticket->self_);
    ticket = next;
  }
}

void PlanTicket::Wait() const noexcept {
  for (State now = state(); now < State::kImproved; now = state()) {
    state_.wait(now, std::memory_order_acquire);
  }
}

BackgroundPlanner& BackgroundPlanner::Shared() {
  // No lock that a fork could leave taken.
  BackgroundPlanner* planner = shared_planner.load(std::memory_order_acquire);
  if (planner != nullptr) return *planner;
  if (!stops_at_exit.exchange(true)) std::atexit(&StopSharedAtExit);
  auto fresh = std::make_unique<BackgroundPlanner>();
  if (shared_planner.compare_exchange_strong(planner, fresh.get(), std::memory_order_acq_rel)) {
    return *fresh.release();
  }
  return *planner;
}

void BackgroundPlanner::StopSharedAtExit() {
  BackgroundPlanner* planner = shared_planner.load(std::memory_order_acquire);
  if (planner == nullptr) return;
  const std::lock_guard lock(planner->mutex_);
  planner->is_exiting_ = true;
  planner->StopLocked();
}

void BackgroundPlanner::ForgetSharedInChild() {
  // Its thread does not exist here and its lock may be held by one that does not: leave it be.
  shared_planner.store(nullptr, std::memory_order_release);
}

// Before there are threads: a child would wait for one that was about to do it.
const int BackgroundPlanner::registered_at_start =
    pthread_atfork(nullptr, nullptr, &BackgroundPlanner::ForgetSharedInChild);

BackgroundPlanner::BackgroundPlanner() : handover_(std::make_shared<PlannerHandover>()) {}

BackgroundPlanner::~BackgroundPlanner() { Stop(); }

std::shared_ptr<PlanTicket> BackgroundPlanner::Submit(std::vector<LifetimeBuffer> buffers,
                                                      int64_t alignment,
                                                      const BackgroundPlanOptions& options) {
  CheckPlacementProblem(buffers, alignment);
  if (options.capacity < 0 || options.node_budget < 0 || options.peak_to_beat < 0 ||
      options.budget < absl::ZeroDuration()) {
    ThrowInvalidArgument(absl::StrCat("background planner: capacity ", options.capacity,
                                      ", peak to beat ", options.peak_to_beat, ", node budget ",
                                      options.node_budget, ", budget ",
                                      absl::FormatDuration(options.budget), ", expected all >= 0"));
  }
  PlanTicket::CollectRetired(*handover_);
  const std::shared_ptr<PlanTicket> ticket(new PlanTicket);
  ticket->handover_ = handover_;
  // Should there be no memory for the handle, it is cancelled.
  std::shared_ptr<PlanTicket> handle(ticket.get(), [ticket](PlanTicket* given) {
    given->Cancel();
    PlanTicket::CollectRetired(*ticket->handover_);
  });
  ticket->placement_.offsets.resize(buffers.size());
  ticket->num_buffers_ = static_cast<int64_t>(buffers.size());
  ticket->buffers_ = std::move(buffers);
  ticket->alignment_ = alignment;
  ticket->options_ = options;

  const std::lock_guard lock(mutex_);
  // Only submitters add, under the lock.
  const int64_t load = handover_->load.fetch_add(ticket->num_buffers_, std::memory_order_relaxed);
  if (load + ticket->num_buffers_ > kMostBuffers ||
      num_tickets_.load(std::memory_order_relaxed) >= kMostTickets || is_exiting_ ||
      !StartThread()) {
    ticket->Finish(State::kQueued, State::kRefused);
    return handle;
  }
  num_tickets_.fetch_add(1, std::memory_order_relaxed);
  ticket->self_ = ticket;
  PlanTicket* const added = ticket.get();
  added->next_ = inbox_.load(std::memory_order_relaxed);
  while (!inbox_.compare_exchange_weak(added->next_, added, std::memory_order_release,
                                       std::memory_order_relaxed)) {
  }
  num_signals_.fetch_add(1, std::memory_order_release);
  num_signals_.notify_one();
  return handle;
}

void BackgroundPlanner::Stop() {
  const std::lock_guard lock(mutex_);
  StopLocked();
}

bool BackgroundPlanner::StartThread() {
  if (has_thread_) return true;
  halt_ = std::stop_source();
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  // Signals of the application are handled by its own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  has_thread_ = pthread_attr_setstacksize(&attributes, kStackBytes) == 0 &&
                pthread_create(&thread_, &attributes, &RunThread, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return has_thread_;
}

void BackgroundPlanner::StopLocked() {
  if (!has_thread_) return;
  halt_.request_stop();
  num_signals_.fetch_add(1, std::memory_order_release);
  num_signals_.notify_one();
#ifdef SCHED_IDLE
  // Others wait for it now. Where that is forbidden it takes a little longer.
  sched_param parameters{};
  static_cast<void>(pthread_setschedparam(thread_, SCHED_OTHER, &parameters));
#endif
  pthread_join(thread_, nullptr);
  has_thread_ = false;
  TakeInbox();
  while (queue_ != nullptr) {
    PlanTicket* const ticket = std::exchange(queue_, queue_->next_);
    ticket->Cancel();
    Retire(ticket);
  }
  PlanTicket::CollectRetired(*handover_);
}

void* BackgroundPlanner::RunThread(void* planner) {
#ifdef __linux__
  pthread_setname_np(pthread_self(), "tidepool-plan");
#endif
  YieldToOthers();
  static_cast<BackgroundPlanner*>(planner)->ServeQueue();
  return nullptr;
}

void BackgroundPlanner::ServeQueue() {
  const std::stop_token halt = halt_.get_token();
  while (true) {
    const uint32_t num_signals = num_signals_.load(std::memory_order_acquire);
    if (halt.stop_requested()) return;
    TakeInbox();
    if (PlanTicket* const ticket = NextOfQueue()) {
      {
        const std::stop_callback forward(halt, [ticket] { ticket->stop_.request_stop(); });
        Plan(*ticket);
      }
      Retire(ticket);
    } else {
      num_signals_.wait(num_signals, std::memory_order_acquire);
    }
  }
}

void BackgroundPlanner::TakeInbox() {
  PlanTicket* oldest = nullptr;
  PlanTicket* rest = inbox_.exchange(nullptr, std::memory_order_acquire);
  while (rest != nullptr) {
    PlanTicket* const next = std::exchange(rest->next_, oldest);
    oldest = std::exchange(rest, next);
  }
  PlanTicket** end = &queue_;
  while (*end != nullptr) end = &(*end)->next_;
  *end = oldest;
}

PlanTicket* BackgroundPlanner::NextOfQueue() {
  if (queue_ == nullptr) return nullptr;
  PlanTicket** best = &queue_;
  if (++num_turns_ % kTurnsUntilOldest != 0) {
    for (PlanTicket** link = &queue_; *link != nullptr; link = &(*link)->next_) {
      if ((*link)->num_buffers_ < (*best)->num_buffers_) best = link;
    }
  }
  return std::exchange(*best, (*best)->next_);
}

void BackgroundPlanner::Plan(PlanTicket& ticket) noexcept {
  State expected = State::kQueued;
  if (!ticket.state_.compare_exchange_strong(expected, State::kPlanning,
                                             std::memory_order_acq_rel)) {
    return;  // Cancelled.
  }
  State result = State::kFailed;
  try {
    // Of the thread's own memory, and gone before the ticket is final.
    const std::vector<LifetimeBuffer> buffers = ticket.buffers_;
    SearchOptions options;
    options.alignment = ticket.alignment_;
    options.capacity = ticket.options_.capacity;
    options.time_limit = absl::InfiniteDuration();
    options.processor_time_limit = ticket.options_.budget;
    options.node_budget = ticket.options_.node_budget;
    options.stop = ticket.stop_.get_token();
    const Placement placement = SearchPlanner(buffers, options).Run();
    // A wrong placement would corrupt somebody's memory; the check costs next to nothing.
    if (ticket.stop_.stop_requested()) {
      result = State::kCancelled;
    } else if (ticket.options_.peak_to_beat > 0 && placement.peak >= ticket.options_.peak_to_beat) {
      result = State::kNotImproved;
    } else if (!FindPlacementViolation(buffers, ticket.alignment_, placement)) {
      std::copy(placement.offsets.begin(), placement.offsets.end(),
                ticket.placement_.offsets.begin());
      ticket.placement_.peak = placement.peak;
      ticket.placement_.lower_bound = placement.lower_bound;
      result = State::kImproved;
    }
  } catch (...) {
    // Nobody is there to catch; the submitter keeps the plan it has.
  }
  ticket.Finish(State::kPlanning, result);
}

// The next submitter that comes by frees it.
void BackgroundPlanner::Retire(PlanTicket* ticket) noexcept {
  num_tickets_.fetch_sub(1, std::memory_order_relaxed);
  std::atomic<PlanTicket*>& retired = ticket->handover_->retired;
  ticket->next_ = retired.load(std::memory_order_relaxed);
  while (!retired.compare_exchange_weak(ticket->next_, ticket, std::memory_order_release,
                                        std::memory_order_relaxed)) {
  }
}

}  // namespace tidepool
