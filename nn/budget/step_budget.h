// Training within a budget: what a step keeps for its backward pass waits where the budget has room for it, and bits are those of
// training without one.
//
//   StepBudgetReport report = SetStepBudget(network, {.limit = "50%", .shape = {.batch = 64}});
//   std::puts(report.ToString().c_str());          // what it will be
//   Trainer trainer(network, ...);                 // steps as ever
//   std::puts(OutcomeOf(network, report, seconds_per_step).ToString().c_str());
//
// A budget is of all that a step makes where the network is: the planned peak of its training workspace, and on the host the memory that a
// spill file's transfers pass through. (What is spilled of a device waits in page-locked memory of the host, in no file.) Parameters, gradients and the updater's state are beside it (nn/memory_report.h), and so are the tape's
// records (StepBudgetReport::tape_bytes). The plan holds from the first step on where the batch is made in the
// step's workspace, features or labels first, masks behind both or behind what they mask, or comes from elsewhere (a ring, the heap); a step
// whose batch takes more requests is learned when it comes. What a step's update makes is planned where StepShape names its trainer.
#ifndef TIDEPOOL_NN_BUDGET_STEP_BUDGET_H_
#define TIDEPOOL_NN_BUDGET_STEP_BUDGET_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/spill/spill_counters.h"
#include "tidepool/nn/budget/activation_planner.h"
#include "tidepool/nn/budget/step_meter.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// What is measured otherwise, on this machine. Each number of seconds is 0 to 1e9.
struct StepCosts {
  // Of layers in the order of their calls, and the loss.
  std::vector<double> forward_seconds, backward_seconds;
  // Of the file, 1 to 1e18; 0: nobody knows, and 1e9 is reckoned with.
  double written_bytes_per_second = 0, read_bytes_per_second = 0;
  // Of layers, beside the backward pass, where they make again what they can; empty: none can.
  std::vector<double> remake_seconds;
  // Of layers, beside both, where they are called again; empty: as forward.
  std::vector<double> again_seconds;
};

struct StepBudget {
  // "50%" of what a step needs without a budget, up to 100%; or bytes: "64MiB". Of the network's device.
  std::string limit;
  BudgetStrategy strategy = BudgetStrategy::kAuto;
  // False: where nothing fits, the least there is is taken, and the report says so.
  bool hard = true;
  StepShape shape;  // of the largest batch
  // Of networks of the host alone. Empty: SpillFileOptions'.
  std::string spill_folder;
  // Of what is spilled to the file. The planner reckons with the file's speed for bytes that do not become smaller.
  SpillCompression compression = SpillCompression::kNone;
  std::optional<StepCosts> costs;
  // Of networks of devices: that a plan lets wait on the host at a time. Its memory is no device's, and has limits of its own.
  int64_t most_waiting_bytes = std::numeric_limits<int64_t>::max();
  // True: the limit is of tail and tape too, as limits of memory/accounting/memory_budget.h are.
  bool counts_all = false;
  // False: where everything can be kept, which is seen at once, nothing is measured, and the report has no seconds.
  bool measures_what_fits = true;
};

// What was found and chosen, before the first step. Bytes and seconds are of one step.
struct StepBudgetReport {
  // Of which network, for what batch, within how many bytes.
  std::string network;
  Device device = Host();
  BudgetStrategy strategy = BudgetStrategy::kAuto;
  int64_t batch = 0;
  int64_t limit_bytes = 0;
  int64_t unlimited_bytes = 0;  // what a step needs that keeps everything
  int64_t least_bytes = 0;    // of the plans that were looked at: a limit that one of them keeps to
  int64_t planned_bytes = 0;  // what steps will take: the planned peak and those of the file
  int64_t file_bytes = 0;     // of these
  int64_t requested_bytes = 0;  // sum of all requests of a step, each by itself
  // Beside them: pages to the end of the last one, and records of the tape, which are the host's: 0 for networks of devices.
  int64_t tail_bytes = 0, tape_bytes = 0;
  // Of what waits for the backward pass: what gradient functions of layers' own have, of which no operator tells.
  int64_t unspillable_bytes = 0;
  bool fits = true;
  double unlimited_seconds = 0;
  ActivationCost predicted;  // its peak is the planner's, before places
  ActivationPlan plan;
  std::vector<std::string> ways;                     // "conv2d: spill", of each layer
  int64_t timed_batch = 0;                           // 0: costs were given
  uint64_t misses = 0;                               // of the workspace while it learned
  SpillWayCounters measured_written, measured_read;  // of the file, to know its speed

  // Some lines for people.
  std::string ToString() const;
};

// What came true of it.
struct StepBudgetOutcome {
  Device device = Host();                                  // of the network
  int64_t planned_bytes = 0, actual_bytes = 0;             // the same unless batches were others
  double predicted_seconds = 0, actual_seconds = 0;        // of a step
  int64_t predicted_spilled_bytes = 0, spilled_bytes = 0;  // of a step, one way
  double stall_seconds = 0;                                // of the last step
  uint64_t misses = 0;                                     // requests that the plan did not foresee
  // Of the file in all steps since: what was waited for and what was moved in vain is what the plan mispredicted.
  SpillWayCounters written, read;

  // Some lines for people.
  std::string ToString() const;
};

// Finds the fastest plan that fits and gives it to the network, whose training workspace has learned it before the first step. Throws
// kInvalidArgument for a limit, and for costs, which it names; kUnimplemented as Network::SetActivationPlan, kFailedPrecondition while
// the training workspace is open, as by a captured step of a trainer that StepShape does not name, OutOfMemoryError where nothing fits a hard budget: with what would be enough, and the ledger; the
// network keeps everything then. What SpillFile throws. Memory: dry runs take addresses, and no pages; times are measured within the
// limit, but for the tape and what kernels keep, by one example at least; of a device, whose gradients() stay the same array, the host has a copy
// of them meanwhile. Time: a few steps, and seconds for the search for places.
// Steps are run and timed meanwhile, on the thread that calls: until it returns gradients() are another array, a thousandth of which is memory (64 KiB
// at least); then they are those that they were, and the gradient listener has been told of nothing.
StepBudgetReport SetStepBudget(Network& network, const StepBudget& budget);
// Everything is kept again.
void ClearStepBudget(Network& network);

// After some steps under `report`; `seconds_per_step` is what the caller measured.
StepBudgetOutcome OutcomeOf(Network& network, const StepBudgetReport& report,
                            double seconds_per_step);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_STEP_BUDGET_H_
