#include "tidepool/memory/workspace/shared_learner.h"

#include <cstdio>
#include <new>

#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {

// ---- with the teacher's lock ------------------------------------------------------------------

SharedLearner::Learner::Learner(const std::string& id, const WorkspaceConfig& config,
                                size_t alignment, MemoryOwner& owner, WatchedCounts& counts)
    : id_(id),
      alignment_(alignment),
      search_seconds_(config.plan_search_seconds),
      owner_(owner),
      counts_(counts),
      learner_(config, alignment),
      reported_version_(learner_.version()) {
  learner_.KeepOutliers();
  learner_.AllowUnrecorded();
  // From here on counting its own memory does not fail.
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, 0, &owner_);
}

SharedLearner::Learner::~Learner() {
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, -state_reported_, &owner_);
}

std::optional<WantedPlan> SharedLearner::Learner::Observe(const EndedCycle& cycle) {
  if (search_.ready()) TakeBetterPlan();
  return learner_.Observe(cycle);
}

void SharedLearner::Learner::Adopt(const WantedPlan& wanted, const Plan& plan) {
  const LearnedCycle* const added = learner_.Adopt(wanted, plan);
  if (added == nullptr || wanted.kind == WantedPlan::Kind::kBeginning) return;
  search_.Cancel();
  if (!learner_.any_pinned()) search_.Begin(added->plan, alignment_, search_seconds_);
}

void SharedLearner::Learner::TakeBetterPlan() {
  std::optional<PlanSearch::Found> found = search_.Take();
  if (found.has_value()) learner_.Improve(*found->beaten, std::move(found->better));
}

size_t SharedLearner::Learner::Load(std::vector<PlacedRequests> cycles, const std::string& path,
                                    size_t believed, std::string* ignored) {
  search_.Cancel();
  return learner_.Load(std::move(cycles), path, believed, ignored);
}

void SharedLearner::Learner::Forget() noexcept {
  search_.Cancel();
  learner_.Forget();
}

// Without memory a cycle teaches nothing, and the next one tries again.
void SharedLearner::Learner::Failed(const std::exception_ptr& why) noexcept {
  try {
    std::rethrow_exception(why);
  } catch (const std::bad_alloc&) {
  } catch (const std::exception& error) {
    if (std::exchange(told_, true)) return;
    std::fprintf(stderr, "tidepool: workspace pool [%s] cannot learn: %s\n", id_.c_str(),
                 error.what());
  }
}

void SharedLearner::Learner::Changed() noexcept {
  counts_.cycles_not_planned = learner_.effort().put_off();
  counts_.plans_given_up = learner_.plans_given_up();
  if (learner_.version() == reported_version_) return;
  reported_version_ = learner_.version();
  counts_.plans_made = learner_.plans_made();
  counts_.plans_improved = learner_.plans_improved();
  counts_.plans_kept = learner_.plans().size();
  const auto bytes = static_cast<int64_t>(learner_.state_bytes());
  if (bytes == state_reported_) return;
  MemoryTracker::Global().Add(Host(), MemoryKind::kWorkspace, bytes - state_reported_, &owner_);
  state_reported_ = bytes;
}

// ---- any thread -------------------------------------------------------------------------------

std::vector<std::shared_ptr<LearnedCycle>> SharedLearner::plans() const {
  return teacher_.Read([](const Learner& learner) {
    const PlanSet::Cycles& cycles = learner.plans().cycles();
    return std::vector<std::shared_ptr<LearnedCycle>>(cycles.begin(), cycles.end());
  });
}

size_t SharedLearner::Load(std::vector<PlacedRequests> cycles, const std::string& path,
                           size_t believed, std::string* ignored) {
  return teacher_.Change(
      [&](Learner& learner) { return learner.Load(std::move(cycles), path, believed, ignored); });
}

void SharedLearner::Forget() noexcept {
  teacher_.Change([](Learner& learner) { learner.Forget(); });
}

std::string SharedLearner::Report() const {
  return teacher_.Read([](const Learner& learner) { return learner.Report(); });
}

void SharedLearner::FinishPlanSearch() {
  const auto ticket = teacher_.Read([](const Learner& learner) { return learner.search(); });
  if (ticket == nullptr) return;
  ticket->Wait();
  teacher_.Change([&](Learner& learner) {
    if (learner.search() == ticket)
      learner.TakeBetterPlan();  // else a cycle has taken it meanwhile
  });
}

}  // namespace tidepool
