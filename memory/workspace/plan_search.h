// The search for a better plan than the one that was made at once, on a background thread.
//
// A plan that others were made around stays as it is, so the search is for a plan that stands alone.
// Threads: one at a time. Errors: none; the plan there is will do.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_SEARCH_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_SEARCH_H_

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "tidepool/memory/planning/background_planner.h"
#include "tidepool/memory/workspace/cycle_plan.h"

namespace tidepool {

class PlanSearch {
 public:
  // Gives up what was searched before. Nothing is searched when the plan is at its lower bound.
  void Begin(std::shared_ptr<const CyclePlan> plan, size_t alignment, double seconds) noexcept {
    Cancel();
    if (seconds == 0 || plan->peak_bytes == plan->lower_bound_bytes) return;
    BackgroundPlanOptions options;
    options.budget = absl::Seconds(seconds);
    options.peak_to_beat = static_cast<int64_t>(plan->peak_bytes);
    try {
      ticket_ = BackgroundPlanner::Shared().Submit({plan->requests.begin(), plan->requests.end()},
                                                   static_cast<int64_t>(alignment), options);
      plan_ = std::move(plan);
    } catch (const std::exception&) {
      ticket_ = nullptr;
    }
  }
  void Cancel() noexcept {
    ticket_ = nullptr;
    plan_ = nullptr;
  }

  bool ready() const { return ticket_ != nullptr && ticket_->ready(); }
  // To wait for it; null when there is none.
  std::shared_ptr<PlanTicket> ticket() const { return ticket_; }

  struct Found {
    std::shared_ptr<const CyclePlan> beaten;
    PlacedRequests better;
  };
  // What was found, when it is ready; the search is over then. Throws std::bad_alloc.
  std::optional<Found> Take() {
    const std::shared_ptr<PlanTicket> ticket = std::move(ticket_);
    std::shared_ptr<const CyclePlan> plan = std::move(plan_);
    std::optional<Placement> better = ticket->Take();
    if (!better.has_value()) return std::nullopt;
    Found found{plan, *plan};
    found.better.offsets = std::move(better->offsets);
    found.better.peak_bytes = static_cast<size_t>(better->peak);
    found.better.lower_bound_bytes = static_cast<size_t>(better->lower_bound);
    return found;
  }

 private:
  std::shared_ptr<PlanTicket> ticket_;
  std::shared_ptr<const CyclePlan> plan_;  // that it is to beat
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_SEARCH_H_
