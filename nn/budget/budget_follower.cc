#include "tidepool/nn/budget/budget_follower.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/nn/network/activation_pass.h"

namespace tidepool::nn {
namespace {

constexpr int64_t kUnlimited = MemoryBudget::kUnlimited;
constexpr int64_t kMargin = 16;  // a share of what is left, for what nobody has measured
constexpr uint64_t kQuietSteps = 64, kMostQuietSteps = 1 << 16;
constexpr int64_t kGrowth = 8;  // a share that there must be more of before a step is planned anew

bool IsBelow(const MemoryOwner& node, const MemoryOwner* above) {
  for (const MemoryOwner* at = &node; at != nullptr; at = at->parent()) {
    if (at == above) return true;
  }
  return above == nullptr;
}

bool KeepsEverything(const ActivationPlan& plan) {
  return !plan.spills() && !plan.recomputes() && !plan.remakes();
}

// What one limit leaves for a step.
struct Left {
  int64_t bytes = kUnlimited;  // that it may take now
  int64_t share = kUnlimited;  // that it will, once other followers hold no more than theirs
  int64_t limit = kUnlimited, others = 0;  // who follows nothing
  double part = 1;                         // of the rest
  int followers = 0;
  std::string whose;
};

}  // namespace

struct BudgetFollower::Entry {
  Entry(Network& of, FollowerOptions by)
      : network(of),
        options(std::move(by)),
        device(of.device()),
        parent(*of.training_workspace().core()->memory_owner.parent()) {}

  // All of the process, for others to see; and what of them is read by others.
  static std::mutex& Mutex() {
    static std::mutex& mutex = *new std::mutex;
    return mutex;
  }
  static std::vector<Entry*>& All() {
    static std::vector<Entry*>& all = *new std::vector<Entry*>;
    return all;
  }
  int64_t OwnBytes() const {
    const int64_t pages =
        node.has_value() ? MemoryBudget::Global().Of(**node, device).taken_bytes : 0;
    return pages + file_bytes;
  }
  void Publish() {
    const std::lock_guard lock(Mutex());
    node.emplace(network.training_workspace().core()->owner_lease);
    file_bytes = report.has_value() ? report->file_bytes : 0;
  }

  // How much of a device's may wait on the host, beside a step of so many bytes there.
  int64_t RoomToWait(int64_t step_bytes) const {
    if (device == Host()) return kUnlimited;
    const Activations* const activations = network.activations();
    const auto waiting =
        activations != nullptr ? static_cast<int64_t>(activations->host_blocks.bytes()) : 0;
    const MemoryBudget& budget = MemoryBudget::Global();
    int64_t room = kUnlimited;
    const auto look = [&](const BudgetUsage& usage, int64_t own) {
      if (usage.limit_bytes != kUnlimited)
        room = std::min(room, std::max<int64_t>(0, usage.limit_bytes - usage.taken_bytes + own));
    };
    for (const MemoryOwner* owner = &MemoryOwner::Current(); owner != nullptr;
         owner = owner->parent())
      look(budget.Of(*owner, Host()), waiting);
    const std::lock_guard lock(Mutex());
    look(budget.process(), waiting + OwnBytes() - step_bytes);
    return room;
  }

  Left LeftOf(const BudgetUsage& usage, const MemoryOwner* owner) const;
  Left FindLeft() const;
  void Plan(const Left& left);
  [[noreturn]] void ThrowNothingFits(const Left& left, const StepBudgetReport& least) const;
  bool IsPlannedFor(const Left& left) const {
    // Behind the first step its tape is among what others hold.
    const bool has_run = network.training_workspace().stats().cycles > 0;
    const int64_t needed =
        report->planned_bytes + report->tail_bytes + (has_run ? 0 : report->tape_bytes);
    if (needed > left.bytes) return false;
    const int64_t room = RoomToWait(needed);
    if (report->plan.spills() && report->predicted.spilled_bytes > room) return false;
    if (KeepsEverything(report->plan)) return true;
    // Of the host as much again has become free.
    const bool may_wait_more = room / 2 > waiting_for;
    return !may_wait_more &&
           left.bytes - left.bytes / kMargin - reserve - planned_for < planned_for / kGrowth;
  }
  // A step has failed that took more than its plan has, or was to.
  bool HasOutgrown() const {
    if (!report.has_value()) return false;
    Workspace& workspace = network.training_workspace();
    const WorkspaceStats stats = workspace.stats();
    return stats.failed_cycles > failed_cycles &&
           (stats.misses + stats.spills > unplanned || workspace.core()->refused() > 0);
  }

  // Whether there is more to plan for. By half where so many steps needed none of it, and to nothing where little is left; each time that it was needed after all twice
  // as many are waited for, so that steps fail ever less often.
  bool LowerReserve(const Left& left) {
    if (reserve == 0 || !report.has_value()) return false;
    const WorkspaceStats stats = network.training_workspace().stats();
    const uint64_t now = stats.misses + stats.spills;
    if (now > seen_unplanned ||
        static_cast<int64_t>(stats.requested_bytes) > report->requested_bytes) {
      seen_unplanned = now;
      seen_cycles = stats.cycles;
    }
    if (stats.cycles < seen_cycles + quiet_steps) return false;
    reserve_has_fallen = true;
    reserve = reserve / 2 < left.bytes / kMargin ? 0 : reserve / 2;
    seen_cycles = stats.cycles;
    return !KeepsEverything(report->plan);
  }

  Network& network;
  const FollowerOptions options;
  const Device device;  // where a step's arrays are
  MemoryOwner& parent;  // below which the training workspace is
  // Guarded by Mutex():
  std::optional<OwnerLease> node;  // the workspace's
  int64_t file_bytes = 0;

  std::optional<StepBudgetReport> report;
  int64_t planned_for = 0, plans = 0;
  int64_t waiting_for = kUnlimited;           // what might wait on the host when it was planned
  int64_t reserve = 0;                        // for what steps were seen to take beyond their plans
  uint64_t failed_cycles = 0, unplanned = 0;  // of the workspace, when it was planned
  // Steps without any of what the reserve is for, after which it falls; and of the workspace, when there was some for the last time.
  bool reserve_has_fallen = false;  // since a step has failed for it
  uint64_t quiet_steps = kQuietSteps, seen_cycles = 0, seen_unplanned = 0;
};

// Under the lock.
Left BudgetFollower::Entry::LeftOf(const BudgetUsage& usage, const MemoryOwner* owner) const {
  Left left;
  if (usage.limit_bytes == kUnlimited) return left;
  int64_t followed = 0;
  double weights = 0;
  for (const Entry* const entry : All()) {
    // The process's limit is of all devices, others are of one.
    if (!IsBelow(entry->parent, owner) || (owner != nullptr && entry->device != device)) continue;
    followed += entry->OwnBytes();
    weights += entry->options.weight;
    ++left.followers;
  }
  left.limit = usage.limit_bytes;
  left.others = std::max<int64_t>(0, usage.taken_bytes - followed);
  left.part = options.weight / weights;
  const double room = static_cast<double>(left.limit - left.others) * left.part;
  left.share = std::max<int64_t>(0, static_cast<int64_t>(std::floor(room)));
  const int64_t now = left.limit - std::max<int64_t>(0, usage.taken_bytes - OwnBytes());
  left.bytes = std::clamp<int64_t>(now, 0, left.share);
  left.whose = owner == nullptr             ? "the process"
               : owner->parent() == nullptr ? absl::StrCat("device ", DeviceName(device))
                                            : absl::StrCat("owner [", owner->Path(), "]");
  return left;
}

Left BudgetFollower::Entry::FindLeft() const {
  const MemoryBudget& budget = MemoryBudget::Global();
  Left least;
  if (!budget.limited()) return least;
  const std::lock_guard lock(Mutex());
  const auto look = [&](const BudgetUsage& usage, const MemoryOwner* owner) {
    Left left = LeftOf(usage, owner);
    if (left.bytes < least.bytes) least = std::move(left);
  };
  for (const MemoryOwner* owner = &parent; owner != nullptr; owner = owner->parent())
    look(budget.Of(*owner, device), owner);
  look(budget.process(), nullptr);
  return least;
}

void BudgetFollower::Entry::ThrowNothingFits(const Left& left,
                                             const StepBudgetReport& least) const {
  const int64_t bytes = least.least_bytes + reserve;
  const int64_t step = bytes + bytes / (kMargin - 1) + 2;
  const auto room = static_cast<int64_t>(std::ceil(static_cast<double>(step) / left.part));
  const MemorySnapshot now = MemoryTracker::Global().Snapshot();
  throw OutOfMemoryError(
      absl::StrCat(
          "step budget: network [", network.name(), "] of batch ", least.batch,
          " follows the limit of ", left.whose, ", which is ", left.limit, " bytes; others hold ",
          left.others, " of them, which leaves ", left.bytes, " for a step",
          left.followers > 1
              ? absl::StrCat(" that shares it with ", left.followers - 1, " that follow it as well")
              : "",
          "; it needs ", least.least_bytes, " bytes by the plan that takes least of those tried (",
          BudgetStrategyName(least.strategy), ": ", least.plan.ToString(), ")",
          reserve > 0 ? absl::StrCat(", steps were seen to take up to ", reserve, " beside that")
                      : "",
          waiting_for == kUnlimited
              ? ""
              : absl::StrCat(", of which ", waiting_for,
                             " may wait on the host by the limits of the host and the process"),
          "; a limit of ", left.others + room, " would have been enough",
          least.batch > 1 ? ", or a smaller batch; " : "; ", least.unlimited_bytes,
          " bytes for a step without a budget"),
      now.ToString() + now.OwnersToString());
}

void BudgetFollower::Entry::Plan(const Left& left) {
  const WorkspaceMode mode = network.training_mode();
  const WorkspaceConfig config = network.training_workspace().config();
  const absl::Cleanup publish = [this] { Publish(); };
  report.reset();
  planned_for = std::max<int64_t>(1, left.bytes - left.bytes / kMargin - reserve);
  waiting_for = RoomToWait(planned_for);
  {
    const std::lock_guard lock(Mutex());
    node.reset();  // what it holds goes now
    file_bytes = 0;
  }
  StepBudgetReport made =
      SetStepBudget(network, {.limit = std::to_string(planned_for),
                              .strategy = options.strategy,
                              .hard = false,
                              .shape = options.shape,
                              .spill_folder = options.spill_folder,
                              .compression = options.compression,
                              .costs = options.costs,
                              .most_waiting_bytes = waiting_for - waiting_for / kMargin,
                              .counts_all = true,
                              .measures_what_fits = false});
  if (!made.fits) {
    ClearStepBudget(network);
    const MemoryOwnerScope owner(parent);
    network.set_training_workspace(mode, config);
    ThrowNothingFits(left, made);
  }
  report = std::move(made);
  const WorkspaceStats stats = network.training_workspace().stats();
  failed_cycles = stats.failed_cycles;
  unplanned = seen_unplanned = stats.misses + stats.spills;
  seen_cycles = stats.cycles;
  ++plans;
}

BudgetFollower::BudgetFollower(Network& network, FollowerOptions options) {
  if (!(options.weight > 0) || std::isinf(options.weight)) {
    ThrowInvalidArgument(
        absl::StrCat("budget follower: a weight of ", options.weight, ", expected more than 0"));
  }
  entry_ = std::make_unique<Entry>(network, std::move(options));
  entry_->Publish();
  const std::lock_guard lock(Entry::Mutex());
  Entry::All().push_back(entry_.get());
}

BudgetFollower::~BudgetFollower() {
  const std::lock_guard lock(Entry::Mutex());
  std::erase(Entry::All(), entry_.get());
}

bool BudgetFollower::Follow() {
  Entry& entry = *entry_;
  Left left = entry.FindLeft();
  if (left.bytes == kUnlimited) {
    if (!entry.report.has_value()) return false;
    const bool kept = KeepsEverything(entry.report->plan);
    entry.report.reset();
    if (!kept) ClearStepBudget(entry.network);
    entry.Publish();
    return !kept;
  }
  const bool outgrown = entry.HasOutgrown();
  if (outgrown) {
    if (entry.reserve_has_fallen)
      entry.quiet_steps = std::min(2 * entry.quiet_steps, kMostQuietSteps);
    entry.reserve_has_fallen = false;
    entry.reserve += std::max<int64_t>(entry.reserve, left.bytes / kMargin);
  }
  const bool anew = entry.LowerReserve(left) || outgrown;
  if (entry.report.has_value() && !anew && entry.IsPlannedFor(left)) return false;
  if (left.bytes < left.share) {
    // Those of others that are idle, and of what is over the limit.
    Reclaimer::Global().ReclaimUnderPressure(left.share - left.bytes);
    left = entry.FindLeft();
    if (left.bytes == kUnlimited || (entry.report.has_value() && !anew && entry.IsPlannedFor(left)))
      return false;
  }
  entry.Plan(left);
  return true;
}

const StepBudgetReport* BudgetFollower::report() const {
  return entry_->report.has_value() ? &*entry_->report : nullptr;
}
std::string BudgetFollower::ToString() const {
  if (entry_->report.has_value()) return entry_->report->ToString();
  return absl::StrCat("network ", entry_->network.name(),
                      ": everything is kept, nothing limits a step\n");
}
int64_t BudgetFollower::plans() const { return entry_->plans; }
int64_t BudgetFollower::reserved_bytes() const { return entry_->reserve; }
int64_t BudgetFollower::allowed_bytes() const { return entry_->FindLeft().bytes; }

}  // namespace tidepool::nn
