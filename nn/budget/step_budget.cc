#include "tidepool/nn/budget/step_budget.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/memory/accounting/bytes_of_text.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/nn/budget/dry_step.h"
#include "tidepool/nn/budget/gradients_aside.h"
#include "tidepool/nn/budget/step_costs.h"
#include "tidepool/nn/budget/waiting_plans.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/network/network_body.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

// Plans whose peak is counted so much larger than the limit are not looked at: the count is seldom a third off.
constexpr double kCountedTooHigh = 1.5;

int64_t LimitOf(const std::string& text, int64_t unlimited) {
  return BytesOfText("step budget: limit", absl::StripTrailingAsciiWhitespace(text), unlimited);
}

// Its memory is a part of the budget, so small budgets have small blocks.
SpillFileOptions FileOptions(const StepBudget& budget, int64_t limit, MemoryOwner& owner) {
  constexpr int64_t kSmallest = 4 << 10, kLargest = 4 << 20;
  SpillFileOptions options;
  options.folder = budget.spill_folder;
  options.owner = &owner;
  options.compression = budget.compression;
  const int64_t share = limit / 16 / options.in_flight / kSmallest * kSmallest;
  options.block_bytes = static_cast<size_t>(std::clamp(share, kSmallest, kLargest));
  return options;
}

int64_t FileBytes(const SpillFileOptions& options) {
  return static_cast<int64_t>(options.block_bytes) * options.in_flight;
}

std::vector<std::string> WaysOf(const Network& network, const ActivationPlan& plan) {
  std::vector<std::string> ways;
  const std::vector<LayerParameters> order = network.trained_by_layer();
  size_t at = 0;
  int number = 0;
  for (const ActivationSegment& segment : plan.segments) {
    if (segment.recomputes()) ++number;
    for (int i = 0; i < segment.layers; ++i) {
      const NodeConfig& node = network.config()->nodes[static_cast<size_t>(order[at++].layer)];
      ways.push_back(
          absl::StrCat(node.name, ": ", RetentionName(segment.retention),
                       segment.recomputes() ? absl::StrCat(", segment ", number) : "",
                       segment.slice > 0 ? absl::StrCat(", in slices of ", segment.slice) : ""));
    }
  }
  return ways;
}

[[noreturn]] void ThrowNothingFits(const StepBudgetReport& report, const std::string& least_plan) {
  const MemorySnapshot now = MemoryTracker::Global().Snapshot();
  throw OutOfMemoryError(
      absl::StrCat(
          "step budget: network [", report.network, "] of batch ", report.batch, " needs ",
          report.least_bytes, " bytes for a step by the plan that takes least of those tried (",
          BudgetStrategyName(report.strategy), ": ", least_plan, "), and the budget is ",
          report.limit_bytes, "; ", report.least_bytes, " would have been enough",
          report.batch > 1 ? ", or a smaller batch; " : "; ", report.unlimited_bytes,
          " without a budget",
          report.unspillable_bytes == 0
              ? ""
              : absl::StrCat("; ", report.unspillable_bytes,
                             " bytes that wait cannot be spilled, as gradient functions of layers' "
                             "own have them")),
      now.ToString() + now.OwnersToString());
}

// Those that take least of the plans for times that nobody has measured and a file of any memory: the same ones each time and for
// each limit, so that a limit that was named as enough for one is enough when it is set.
std::vector<PlannedActivations> LeastPlans(const ActivationProblem& measured,
                                           BudgetStrategy strategy) {
  constexpr size_t kPlans = 3;
  ActivationProblem problem = measured;
  const auto forget = [](LayerActivations& layer) {
    layer.forward_seconds = layer.backward_seconds = layer.remake_seconds = 1e-3;
    layer.again_seconds = -1;
  };
  for (LayerActivations& layer : problem.layers) forget(layer);
  forget(problem.loss);
  problem.written_bytes_per_second = problem.read_bytes_per_second = 1e9;
  problem.round_trip_seconds_per_byte = 0;
  problem.file_bytes = 0;
  for (SlicedActivations& slice : problem.slices) {
    slice.forward_factor = slice.backward_factor = SlicedActivations().forward_factor;
  }
  std::vector<PlannedActivations> plans = FindPlans(problem, strategy);
  if (plans.size() > kPlans)
    plans.erase(plans.begin(), plans.end() - static_cast<std::ptrdiff_t>(kPlans));
  for (PlannedActivations& one : plans) one.cost = CostOf(measured, one.plan);
  return plans;
}

void Check(Network& network, const StepBudget& budget) {
  if (budget.shape.batch < 1) {
    ThrowInvalidArgument(
        absl::StrCat("step budget: a batch of ", budget.shape.batch, ", expected at least 1"));
  }
  if (network.config() == nullptr) {
    ThrowUnimplemented(absl::StrCat(
        "step budget: network [", network.name(),
        "]: the order of layers is a program's, expected a network of a configuration"));
  }
  if (network.is_hosted()) {
    ThrowUnimplemented(absl::StrCat(
        "step budget: network [", network.name(),
        "] has its parameters elsewhere (in a SpilledTrainer's file, or in parts), whose steps "
        "keep all that waits for the backward pass; expected a network with parameters of its "
        "own, or smaller batches"));
  }
  if (network.training_mode() != WorkspaceMode::kEnabled) {
    ThrowUnimplemented(absl::StrCat("step budget: network [", network.name(),
                                    "] trains in another workspace mode than enabled, which has no "
                                    "planned peak"));
  }
  const WorkspaceConfig& config = network.training_workspace().config();
  if (config.passes_through() ||
      (network.device() != Host() && config.policy_mirroring == MirroringPolicy::kHostOnly)) {
    ThrowUnimplemented(absl::StrCat(
        "step budget: network [", network.name(), "]: its training workspace ",
        config.passes_through() ? "is switched off (workspace_mode or debug_mode)"
                                : "has a device's arrays on the host (MirroringPolicy::kHostOnly)",
        ", expected one that plans where the network is"));
  }
  for (const int64_t batch : budget.shape.other_batches) {
    if (batch >= 1 && batch <= budget.shape.batch) continue;
    ThrowInvalidArgument(absl::StrCat("step budget: network [", network.name(),
                                      "]: another batch of ", batch, " examples, expected 1 to ",
                                      budget.shape.batch));
  }
}

// Of a network that keeps everything, and again where it throws.
StepBudgetReport PlanWithin(Network& network, const StepBudget& budget, MemoryOwner& owner,
                            const WorkspaceConfig& config) {
  StepBudgetReport report;
  report.network = network.name();
  report.device = network.device();
  report.strategy = budget.strategy;
  report.batch = budget.shape.batch;
  ActivationProblem problem = MeasureActivations(network, budget.shape);
  for (const ActivationArray& array : problem.arrays) {
    if (!array.kept_by.empty() && !array.can_spill) report.unspillable_bytes += array.bytes;
  }
  const ActivationPlan keep = PlanOfLayers(network, Retention::kKeep);
  const auto beside_of = [&](const StepMemory& memory) {
    return budget.counts_all ? memory.tail_bytes + memory.tape_bytes : 0;
  };
  const StepMemory unlimited = MeasureStep(network, budget.shape, keep, nullptr, INT64_MAX);
  report.unlimited_bytes = unlimited.planned_bytes + beside_of(unlimited);
  report.limit_bytes = LimitOf(budget.limit, report.unlimited_bytes);

  const bool keeps = !budget.measures_what_fits && report.unlimited_bytes <= report.limit_bytes;
  BudgetStrategy strategy = keeps ? BudgetStrategy::kNone : budget.strategy;
  std::shared_ptr<SpillFile> file;
  const bool may_spill = strategy == BudgetStrategy::kAuto || strategy == BudgetStrategy::kSpill;
  const bool by_file =
      network.device() == Host();  // else what is spilled waits in memory of the host
  if (may_spill && by_file) {
    const SpillFileOptions options = FileOptions(budget, report.limit_bytes, owner);
    try {
      file = std::make_shared<SpillFile>(options);
      problem.file_bytes = FileBytes(options);
    } catch (const OutOfMemoryError&) {
      // Not even its blocks fit into the budgets there are.
      strategy =
          strategy == BudgetStrategy::kAuto ? BudgetStrategy::kRecompute : BudgetStrategy::kNone;
    }
  }
  if (budget.costs.has_value()) {
    TakeGivenCosts(*budget.costs, &problem);
  } else if (!keeps) {
    // Beside the file's memory.
    report.timed_batch =
        TakeTimes(network, budget.shape,
                  report.limit_bytes - (file != nullptr ? problem.file_bytes : 0), &problem);
    if (file != nullptr) MeasureFile(*file, report.limit_bytes / 4, &problem);
    if (may_spill && !by_file)
      MeasureHostCopies(network.device(), report.limit_bytes / 4, &problem);
  }
  report.unlimited_seconds = CostOf(problem, keep).seconds;

  // The first one that fits once its arrays have places, the fastest one first. Where none does, those that were not looked at are:
  // the least is to be the least.
  std::vector<PlannedActivations> plans = {{keep, CostOf(problem, keep)}};  // nothing is faster
  for (PlannedActivations& one : FindPlans(problem, strategy)) plans.push_back(std::move(one));
  const int64_t may_wait = by_file ? INT64_MAX : budget.most_waiting_bytes;
  AddPlansThatMayWait(problem, strategy, may_wait, &plans);
  const size_t of_these_times = plans.size();
  const auto add_least = [&](BudgetStrategy of_strategy) {
    std::vector<PlannedActivations> found = LeastPlans(problem, of_strategy);
    AddPlansThatMayWait(problem, of_strategy, may_wait, &found);
    for (PlannedActivations& one : found) plans.push_back(std::move(one));
  };
  add_least(strategy);
  // And what is told where there is no room for a file's memory, which may be more than spilling saves.
  if (strategy == BudgetStrategy::kAuto) add_least(BudgetStrategy::kRecompute);
  const auto file_of = [&](const ActivationPlan& plan) { return plan.spills() ? file : nullptr; };
  const PlannedActivations* least = nullptr;
  report.least_bytes = INT64_MAX;
  // Takes the plan, where it is within the limit or `whatever` it takes.
  const auto take = [&](const PlannedActivations& one, bool whatever) {
    const StepMemory memory =
        PrepareStep(network, budget.shape, one.plan, file_of(one.plan), config);
    report.file_bytes = by_file && one.plan.spills() ? problem.file_bytes : 0;
    report.planned_bytes = memory.planned_bytes + report.file_bytes;
    report.requested_bytes = memory.requested_bytes;
    report.tail_bytes = memory.tail_bytes;
    report.tape_bytes = memory.tape_bytes;
    report.plan = one.plan;
    report.predicted = one.cost;
    report.fits = report.planned_bytes + beside_of(memory) <= report.limit_bytes;
    return report.fits || whatever;
  };
  const auto may_not_wait = [&](const PlannedActivations& one) {
    return one.cost.spilled_bytes > may_wait;
  };
  // Plans for the times that were measured now may not be found again, but keeping everything is.
  const auto is_found_again = [&](const PlannedActivations& one) {
    return static_cast<size_t>(&one - plans.data()) >= of_these_times || &one == plans.data();
  };
  bool is_taken = false;
  for (const bool high : {false, true}) {
    for (const PlannedActivations& one : plans) {
      const bool is_high = static_cast<double>(one.cost.peak_bytes) >
                           kCountedTooHigh * static_cast<double>(report.limit_bytes);
      if (is_taken || is_high != high || may_not_wait(one)) continue;
      const bool has_file = by_file && one.plan.spills();
      const int64_t transfers = has_file ? problem.file_bytes : 0;
      const StepMemory memory = MeasureStep(network, budget.shape, one.plan, file_of(one.plan),
                                            report.limit_bytes - transfers, budget.counts_all);
      int64_t of_step = memory.planned_bytes + beside_of(memory);
      // Batches that are made in other ways may have other places.
      if (of_step + transfers <= report.limit_bytes) {
        is_taken = take(one, /*whatever=*/false);
        of_step = std::max(of_step, report.planned_bytes - report.file_bytes + beside_of(memory));
      }
      // A file's memory is a share of the limit.
      int64_t enough = of_step + transfers;
      while (has_file) {
        const int64_t more = of_step + FileBytes(FileOptions(budget, enough, owner));
        if (more <= enough) break;
        enough = more;
      }
      if (is_found_again(one) && enough < report.least_bytes) {
        report.least_bytes = enough;
        least = &one;
      }
      if (is_taken) report.least_bytes = std::min(report.least_bytes, enough);
    }
  }
  if (!is_taken && budget.hard) ThrowNothingFits(report, least->plan.ToString());
  if (!is_taken) take(*least, /*whatever=*/true);
  report.ways = WaysOf(network, report.plan);
  if (report.file_bytes > 0) {
    const SpillFileStats measured = file->stats();
    report.measured_written = measured.written;
    report.measured_read = measured.read;
  }
  return report;
}

}  // namespace

StepBudgetReport SetStepBudget(Network& network, const StepBudget& budget) {
  Check(network, budget);
  LimitOf(budget.limit, 1);  // what is wrong is found before anything is done
  if (budget.costs.has_value()) CheckCosts(network, *budget.costs);
  if (budget.shape.trainer != nullptr) budget.shape.trainer->ForgetGraph();
  MemoryOwner& owner = *network.training_workspace().core()->memory_owner.parent();
  const MemoryOwnerScope as_before(
      owner);  // the workspace is made anew, and its file's memory is beside it
  ClearStepBudget(network);
  const WorkspaceConfig config = network.training_workspace().config();
  absl::Cleanup restore = [&] {
    network.SetActivationPlan({});
    RestoreWorkspace(network, config);
    network.ReleaseTape();  // whose memory is beside the budgets
  };
  GradientsAside aside(network);
  StepBudgetReport report;
  try {
    report = PlanWithin(network, budget, owner, config);
  } catch (Error& error) {
    try {
      aside.Restore();
    } catch (const Error& lost) {
      error.AddContext(lost.message());
    }
    throw;
  }
  aside.Restore();
  std::move(restore).Cancel();
  // Smaller batches, and those that are made in another order, have other plans or none: within these pages.
  network.training_workspace().core()->KeepWithinPages();
  report.misses = network.training_workspace().stats().misses;
  return report;
}

namespace {

SpillWayCounters Since(const SpillWayCounters& before, const SpillWayCounters& now) {
  SpillWayCounters since;
  for (int64_t SpillWayCounters::*const member :
       {&SpillWayCounters::transfers, &SpillWayCounters::bytes, &SpillWayCounters::stored_bytes,
        &SpillWayCounters::stalls, &SpillWayCounters::stall_nanoseconds, &SpillWayCounters::dropped,
        &SpillWayCounters::dropped_bytes}) {
    since.*member = now.*member - before.*member;
  }
  return since;
}

}  // namespace

void ClearStepBudget(Network& network) { network.SetActivationPlan({}); }

StepBudgetOutcome OutcomeOf(Network& network, const StepBudgetReport& report,
                            double seconds_per_step) {
  StepBudgetOutcome outcome;
  outcome.device = report.device;
  const WorkspaceStats stats = network.training_workspace().stats();
  outcome.planned_bytes = report.planned_bytes;
  outcome.actual_bytes = static_cast<int64_t>(stats.planned_peak_bytes) + report.file_bytes;
  outcome.predicted_seconds = report.predicted.seconds;
  outcome.actual_seconds = seconds_per_step;
  outcome.predicted_spilled_bytes = report.predicted.spilled_bytes;
  outcome.misses = stats.misses - report.misses;
  if (const Activations* const activations = network.activations()) {
    outcome.spilled_bytes = activations->last.bytes;
    outcome.stall_seconds = activations->last.stall_seconds;
    if (activations->file != nullptr) {
      const SpillFileStats moved = activations->file->stats();
      outcome.written = Since(report.measured_written, moved.written);
      outcome.read = Since(report.measured_read, moved.read);
    }
  }
  return outcome;
}

namespace {

const char* WhereSpilled(Device device) { return device == Host() ? "the file" : "the host"; }

}  // namespace

std::string StepBudgetReport::ToString() const {
  std::string text = absl::StrFormat(
      "network %s, batch %d: a step needs %d bytes, its budget is %d\n  strategy %s: %s\n"
      "  planned: %d bytes%s%s, %.4f s a step (%.4f s without a budget; %.4f s computed again, "
      "%.4f s waiting for %s), %d bytes "
      "to %s and back\n",
      network, batch, unlimited_bytes, limit_bytes, BudgetStrategyName(strategy), plan.ToString(),
      planned_bytes,
      file_bytes > 0 ? absl::StrCat(" (", file_bytes, " of them for transfers)") : "",
      fits ? "" : ", which is beyond it: nothing takes less", predicted.seconds, unlimited_seconds,
      predicted.recompute_seconds, predicted.stall_seconds, WhereSpilled(device),
      predicted.spilled_bytes, WhereSpilled(device));
  for (const std::string& way : ways) absl::StrAppend(&text, "    ", way, "\n");
  return text;
}

std::string StepBudgetOutcome::ToString() const {
  return absl::StrFormat(
      "budget: planned %d bytes, took %d; predicted %.4f s a step, took %.4f; predicted %d bytes "
      "to %s and back, moved %d; waited "
      "%.4f s for %s in the last step; %d requests beside the plan%s\n",
      planned_bytes, actual_bytes, predicted_seconds, actual_seconds, predicted_spilled_bytes,
      WhereSpilled(device), spilled_bytes, stall_seconds, WhereSpilled(device), misses,
      written.any() || read.any()
          ? absl::StrFormat("; of %d writes %d were waited for, of %d reads %d, %d were in vain",
                            written.transfers, written.stalls, read.transfers, read.stalls,
                            written.dropped + read.dropped)
          : "");
}

}  // namespace tidepool::nn
