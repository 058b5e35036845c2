// Training that keeps to the budgets there are (MemoryBudget): of the process, of the network's device (the host's, where it is there), of
// the owners that its memory there is charged to. What they leave is what a step is planned for, and when one of them changes the next step is planned anew.
//
//   MemoryBudget::Global().SetOwnerLimit(owner, Host(), int64_t{2} << 30);   // or TIDEPOOL_MEMORY_BUDGET
//   Trainer trainer(network, updater);
//   BudgetFollower budget(network, {.shape = {.batch = 64}});
//   for (...) {
//     budget.Follow();             // before each step: a few atomic reads, unless something has changed
//     trainer.Step(...);
//   }
//
// What a plan of a device lets wait on the host keeps to the limits that there are of the host and the process.
//
// What is left of a limit is what others do not hold: parameters, gradients, the updater's state, data. Several followers below one limit
// share it by their weights, and give way at their next steps when another one comes. The tape's records and
// the end of the last page are measured and left room for, and a sixteenth stays for the rest of what a step makes beside its plan. Where a step
// fails that took more than its plan has (its batch is made in other ways than step_budget.h says), the next Follow() plans for less:
// training goes on, or is refused with what would be enough; and for more again once steps have taken no more than their plan for long (reserved_bytes()).
//
// Bits are those of training without a budget, whatever it is and however often it changes (step_budget.h).
#ifndef TIDEPOOL_NN_BUDGET_BUDGET_FOLLOWER_H_
#define TIDEPOOL_NN_BUDGET_BUDGET_FOLLOWER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tidepool/memory/spill/spill_counters.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// How a step is planned, as StepBudget has it.
struct FollowerOptions {
  BudgetStrategy strategy = BudgetStrategy::kAuto;  // of what waits for the backward pass
  StepShape shape;                                  // of the largest batch
  double weight = 1;         // above 0; beside others that follow the same limit
  std::string spill_folder;  // of networks of the host; empty: SpillFileOptions'
  SpillCompression compression = SpillCompression::kNone;  // of what is spilled
  std::optional<StepCosts> costs;                          // null: they are measured
};

class BudgetFollower {
 public:
  // The network outlives it. Nothing is planned before Follow(). Throws kInvalidArgument for a weight.
  BudgetFollower(Network& network, FollowerOptions options);
  // The network keeps the plan that it has.
  ~BudgetFollower();
  BudgetFollower(const BudgetFollower&) = delete;
  BudgetFollower& operator=(const BudgetFollower&) = delete;

  // Before a step, on the thread of the steps, outside of the training workspace. True where it was planned anew: because less is left than the plan takes, or an
  // eighth more than it was made for and it does not keep everything, or for the first time. Without a limit everything is kept. Throws
  // OutOfMemoryError where nothing fits, with the limit that would have been enough: the network keeps everything then, and the next call
  // plans again. Others as SetStepBudget. Its cost where something is planned: that of SetStepBudget.
  bool Follow();

  // Of the last plan, and how often there was one; null: there is none, as nothing limits, or nothing fits.
  const StepBudgetReport* report() const;
  int64_t plans() const;
  // The report's lines, or one that says why there is none.
  std::string ToString() const;
  // What stays of that for what steps were seen to take beside their plans: a sixteenth of what is left, or as much as it was, more for each step that failed for
  // it. By half, and at last to nothing, it falls where 64 steps had none of that; twice as many each time that it was needed after all.
  int64_t reserved_bytes() const;
  // What is left for a step, now; MemoryBudget::kUnlimited: nothing limits.
  int64_t allowed_bytes() const;

 private:
  struct Entry;
  std::unique_ptr<Entry> entry_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_BUDGET_FOLLOWER_H_
