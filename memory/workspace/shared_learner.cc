#include "tidepool/memory/workspace/shared_learner.h"

#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {

SharedLearner::SharedLearner(const std::string& id, const WorkspaceConfig& config, size_t alignment,
                             MemoryOwner& owner)
    : id_(id),
      alignment_(alignment),
      search_seconds_(config.plan_search_seconds),
      owner_(owner),
      learner_(config, alignment),
      version_(learner_.version()) {
  learner_.KeepOutliers();
  // From here on counting its own memory does not fail.
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, 0, &owner_);
}

SharedLearner::~SharedLearner() {
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, -state_reported_, &owner_);
}

Lesson SharedLearner::lesson() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return learner_.lesson();
}

void SharedLearner::Changed() noexcept {
  unplanned_bytes_.store(learner_.unplanned_bytes(), std::memory_order_relaxed);
  if (learner_.version() == version_.load(std::memory_order_relaxed)) return;
  version_.store(learner_.version(), std::memory_order_release);
  const auto bytes = static_cast<int64_t>(learner_.state_bytes());
  if (bytes == state_reported_) return;
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, bytes - state_reported_, &owner_);
  state_reported_ = bytes;
}

void SharedLearner::CannotLearn(const char* why) noexcept {
  if (std::exchange(told_, true)) return;
  std::fprintf(stderr, "tidepool: workspace pool [%s] cannot learn: %s\n", id_.c_str(), why);
}

void SharedLearner::Observe(EndedCycle cycle, uint64_t version) noexcept {
  std::optional<WantedPlan> wanted;
  std::shared_ptr<const PlanList> before;  // what is forgotten goes after the lock
  {
    std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
    const bool as_expected = cycle.misses == 0 && cycle.followed != nullptr;
    if (!as_expected) {
      lock.lock();
    } else if (!lock.try_lock()) {
      return;
    }
    before = learner_.plans().list();
    cycle.current = version == learner_.version();
    try {
      if (search_.ready()) TakeBetterPlan();
      wanted = learner_.Observe(cycle);
    } catch (const std::bad_alloc&) {
      // It teaches nothing.
    } catch (const std::exception& error) {
      CannotLearn(error.what());
    }
    Changed();
  }
  if (wanted.has_value()) MakePlan(*wanted, cycle);
}

// The cycle stays as it is: its thread is here.
void SharedLearner::MakePlan(const WantedPlan& wanted, const EndedCycle& cycle) noexcept {
  MadePlans plan;
  const char* why = nullptr;
  std::string error_text;
  try {
    plan = PlanLearner::MakePlan(wanted, cycle);
  } catch (const std::bad_alloc&) {
    // Without memory for it the cycle teaches nothing.
  } catch (const std::exception& error) {
    why = "planning failed";
    try {
      error_text = error.what();
      why = error_text.c_str();
    } catch (const std::bad_alloc&) {
    }
  }
  std::shared_ptr<const PlanList> before;
  std::lock_guard<std::mutex> lock(mutex_);
  if (why != nullptr) CannotLearn(why);
  before = learner_.plans().list();
  try {
    const LearnedCycle* const added = learner_.Adopt(wanted, plan);
    if (added != nullptr && wanted.kind != WantedPlan::Kind::kBeginning) {
      search_.Cancel();
      if (!learner_.any_pinned()) search_.Begin(added->plan, alignment_, search_seconds_);
    }
  } catch (const std::bad_alloc&) {
    // Likewise.
  }
  Changed();
}

void SharedLearner::TakeBetterPlan() {
  std::optional<PlanSearch::Found> found = search_.Take();
  if (found.has_value()) learner_.Improve(*found->beaten, std::move(found->better));
}

std::vector<std::shared_ptr<LearnedCycle>> SharedLearner::plans() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto cycles = learner_.plans().cycles();
  return {cycles.begin(), cycles.end()};
}

size_t SharedLearner::Load(std::vector<PlacedRequests> cycles, const std::string& path,
                           std::string* ignored) {
  std::lock_guard<std::mutex> lock(mutex_);
  search_.Cancel();
  try {
    const size_t loaded = learner_.Load(std::move(cycles), path, ignored);
    Changed();
    return loaded;
  } catch (...) {
    Changed();
    throw;
  }
}

void SharedLearner::Forget() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  search_.Cancel();
  learner_.Forget();
  Changed();
}

void SharedLearner::FinishPlanSearch() {
  std::shared_ptr<PlanTicket> ticket;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ticket = search_.ticket();
  }
  if (ticket == nullptr) return;
  ticket->Wait();
  std::lock_guard<std::mutex> lock(mutex_);
  if (search_.ticket() != ticket) return;  // a cycle has taken it meanwhile
  TakeBetterPlan();
  Changed();
}

SharedLearner::Counts SharedLearner::counts() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {learner_.plans_made(), learner_.plans_improved(), learner_.effort().put_off(),
          learner_.plans().size()};
}

}  // namespace tidepool
