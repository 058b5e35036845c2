#include "tidepool/nn/budget/waiting_plans.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tidepool::nn {
namespace {

// Spilled segments of `plan` beyond the room are `otherwise`.
PlannedActivations Within(const ActivationProblem& problem, ActivationPlan plan, int64_t room,
                          Retention otherwise) {
  for (size_t i = plan.segments.size(); i-- > 0;) {
    PlannedActivations now{plan, CostOf(problem, plan)};
    if (now.cost.spilled_bytes <= room) return now;
    ActivationSegment& segment = plan.segments[i];
    if (segment.retention == Retention::kSpill) segment.retention = otherwise;
    if (segment.retention == Retention::kRecomputeSpilled)
      segment.retention = Retention::kRecompute;
  }
  return {plan, CostOf(problem, plan)};
}

}  // namespace

void AddPlansThatMayWait(const ActivationProblem& problem, BudgetStrategy strategy,
                         int64_t most_waiting_bytes, std::vector<PlannedActivations>* plans) {
  if (plans->empty()) return;
  std::vector<PlannedActivations> added;
  for (const PlannedActivations& one : *plans) {
    if (one.cost.spilled_bytes <= most_waiting_bytes) continue;
    added.push_back(Within(problem, one.plan, most_waiting_bytes, Retention::kKeep));
    if (strategy == BudgetStrategy::kAuto)
      added.push_back(Within(problem, one.plan, most_waiting_bytes, Retention::kRecompute));
  }
  for (PlannedActivations& one : added) {
    const auto slower = std::find_if(plans->begin() + 1, plans->end(), [&](const auto& other) {
      return other.cost.seconds >= one.cost.seconds;
    });
    plans->insert(slower, std::move(one));
  }
}

}  // namespace tidepool::nn
