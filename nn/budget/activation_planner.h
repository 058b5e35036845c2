// Which layers keep, spill or recompute what waits for the backward pass.
//
// FindPlans() looks for good plans of all sizes, whatever the budget is, so that a larger budget has all the plans of a smaller one to
// choose from and is never slower; the three pure choices are among them. Small networks are searched exhaustively. Else plans are
// improved block by block towards a ladder of peaks, and looked for among segments of equal length. Each is counted as a whole
// (activation_problem.h), never by what its parts would save.
//
// Threads: pure functions. Cost: below a second for 1000 layers.
#ifndef TIDEPOOL_NN_BUDGET_ACTIVATION_PLANNER_H_
#define TIDEPOOL_NN_BUDGET_ACTIVATION_PLANNER_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/nn/budget/activation_problem.h"
#include "tidepool/nn/network/activation_plan.h"

namespace tidepool::nn {

enum class BudgetStrategy : uint8_t {
  kAuto,       // keep, spill and recompute as it suits
  kSpill,      // keep and spill
  kRecompute,  // keep and recompute
  kNone,       // keep
};
const char* BudgetStrategyName(BudgetStrategy strategy);
// "auto", "spill", "recompute", "none". Throws kInvalidArgument, which begins with `what`.
BudgetStrategy ParseBudgetStrategy(absl::string_view what, absl::string_view text);

struct PlannedActivations {
  ActivationPlan plan;
  ActivationCost cost;
};

// The first one keeps as much as pays. Each is slower than the one before, and its peak is smaller: none is beaten in both.
std::vector<PlannedActivations> FindPlans(const ActivationProblem& problem,
                                          BudgetStrategy strategy);

// Layers up to which every plan is looked at, with transfers of one segment's length, where no layer can make anything again.
int LayersSearchedExhaustively(BudgetStrategy strategy);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_ACTIVATION_PLANNER_H_
