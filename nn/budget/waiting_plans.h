// Of step_budget.cc: plans of which no more waits on the host than there is room for.
#ifndef TIDEPOOL_NN_BUDGET_WAITING_PLANS_H_
#define TIDEPOOL_NN_BUDGET_WAITING_PLANS_H_

#include <cstdint>
#include <vector>

#include "tidepool/nn/budget/activation_planner.h"
#include "tidepool/nn/budget/activation_problem.h"

namespace tidepool::nn {

// Of each plan that lets more wait one that spills as many of its first segments as may, and keeps the rest, or where the strategy
// computes again has that computed again: what is made first waits longest. They are in front of all that are as fast or slower, the first
// plan stays where it is.
void AddPlansThatMayWait(const ActivationProblem& problem, BudgetStrategy strategy,
                         int64_t most_waiting_bytes, std::vector<PlannedActivations>* plans);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_WAITING_PLANS_H_
