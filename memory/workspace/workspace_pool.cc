#include "tidepool/memory/workspace/workspace_pool.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/lease_list.h"
#include "tidepool/memory/workspace/plan_file.h"
#include "tidepool/memory/workspace/pool_census.h"
#include "tidepool/memory/workspace/pool_state.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

void Validate(const std::string& id, const WorkspaceConfig& config, Device device) {
  std::vector<std::string> reasons = config.Reasons(device);
  const auto refuse = [&](bool wrong, const char* reason) {
    if (wrong) reasons.emplace_back(reason);
  };
  refuse(config.policy_learning != LearningPolicy::kTraining,
         "policy_learning is not kTraining: what threads serve in turns is learned kind by kind");
  refuse(config.policy_allocation == AllocationPolicy::kOverallocate,
         "policy_allocation kOverallocate adds to pages, and a pool has none: use kStrict");
  refuse(config.policy_spill != SpillPolicy::kReallocate,
         "policy_spill is not kReallocate: a pool grows as it learns; limit it by max_size or a "
         "MemoryBudget");
  refuse(config.initial_size != 0 || config.min_size != 0,
         "initial_size and min_size are of a workspace's own pages");
  refuse(config.policy_location != LocationPolicy::kRam,
         "policy_location kMmap: a file is one workspace's");
  refuse(config.policy_reset != ResetPolicy::kBlockLeft,
         "policy_reset kEndOfBufferReached is a ring: use RingWorkspace");
  if (reasons.empty()) return;
  ThrowInvalidArgument(absl::StrCat("workspace pool [", id,
                                    "]: illegal configuration: ", absl::StrJoin(reasons, "; ")));
}

// Of the workspaces (lease_list.h).
struct LeasedWorkspaces {
  using Owner = std::unique_ptr<Workspace>;
  using Numbers = WorkspacePoolStats;

  static LeaseLinks<StdSync, Workspace>& Links(const Workspace& workspace) {
    return workspace.core()->lease_links();
  }
  static void Count(const Workspace& workspace, WorkspacePoolStats* sum) noexcept {
    AddTo(sum, *workspace.core());
    sum->block_bytes += workspace.core()->counters.block_bytes;
  }
  // A cycle that is open ends as a failed one.
  static void CountGone(const Workspace& workspace, WorkspacePoolStats* sum) noexcept {
    const WorkspaceCore& core = *workspace.core();
    AddTo(sum, core);
    const uint64_t left_open = core.generation() - core.counters.cycles;
    sum->cycles += left_open;
    sum->failed_cycles += left_open;
  }

 private:
  static void AddTo(WorkspacePoolStats* sum, const WorkspaceCore& core) noexcept {
    const WorkspaceCounters& counters = core.counters;
    sum->cycles += counters.cycles;
    sum->failed_cycles += counters.failed_cycles;
    sum->hits += core.CurrentHits();
    sum->misses += counters.misses;
    sum->spills += counters.spills;
    sum->leaked_arrays += counters.leaked_arrays;
    sum->leaked_blocks += counters.leaked_blocks;
  }
};

// A workspace that was not leased while so many cycles of others ended gives back what it has kept
// for containers.
constexpr uint64_t kCyclesKept = 256;

}  // namespace

class WorkspacePool::Core final : public std::enable_shared_from_this<WorkspacePool::Core>,
                                  public internal::WatchedPool,
                                  public PoolKeeper {
 public:
  Core(std::string id, WorkspaceConfig config, Device device)
      : id_((Validate(id, config, device), std::move(id))),
        config_(std::move(config)),
        device_(device),
        parent_(MemoryOwner::Current()) {
    // The first one tells where the memory is and how it is aligned.
    const MemoryOwnerScope owner(parent_);
    DeviceProvider& provider = WorkspaceCore::MemoryOf(id_, config_, device_);
    state_ = std::make_shared<PoolState>(
        id_, config_, std::max(config_.alignment, provider.traits().alignment), provider,
        OwnerLease(parent_, absl::StrCat("workspace ", id_)));
    state_->memory.SetOwner(state_);
    internal::JoinCensus(this, id_, device_);
  }
  ~Core() { internal::LeaveCensus(this, id_, device_); }

  // Before the first lease.
  void Keep() { state_->keeper = weak_from_this(); }

  WorkspaceLease Lease() {
    std::shared_ptr<Core> self = shared_from_this();
    std::unique_ptr<Workspace> workspace = workspaces_.Lease([this] {
      const MemoryOwnerScope owner(parent_);
      return Workspace::OfPool(id_, config_, device_, state_);
    });
    return WorkspaceLease(std::move(self), std::move(workspace));
  }

  void Return(std::unique_ptr<Workspace> workspace) noexcept {
    const bool open = workspace->is_open();
    if (open) {
      std::fprintf(stderr, "tidepool: a workspace of pool [%s] goes back while it is open\n",
                   id_.c_str());
    }
    const uint64_t cycles = open ? 1 : std::max<uint64_t>(workspace->core()->TakeUntoldCycles(), 1);
    workspaces_.Return(std::move(workspace), /*usable=*/!open, cycles);
    TrimLongIdle();
  }

  void CyclesEnded(uint64_t count) noexcept override {
    workspaces_.CountUses(count);
    TrimLongIdle();
  }

  void Close() noexcept { workspaces_.Close(); }

  void Trim() noexcept {
    workspaces_.EndIdle();
    TrimLeased();
    state_->memory.Trim();
  }

  WorkspacePoolStats stats() const { return StatsWith(state_->memory.usage()); }
  WorkspacePoolStats StatsInPassing() const noexcept override {
    return StatsWith(state_->memory.usage_in_passing());
  }

  void LockForFork() const noexcept override { workspaces_.LockForFork(); }
  void UnlockAfterFork() const noexcept override { workspaces_.UnlockAfterFork(); }

  const std::string& id() const { return id_; }
  const WorkspaceConfig& config() const { return config_; }
  Device device() const { return device_; }
  PoolState& state() const { return *state_; }
  const MemoryOwner& owner() const { return *state_->owner; }

 private:
  void TrimLongIdle() noexcept {
    auto long_idle = workspaces_.TakeLongIdle(
        kCyclesKept, [](const Workspace& idle) { return idle.core()->counters.block_bytes > 0; });
    if (long_idle == nullptr) return;
    long_idle->core()->Reclaim(ReclaimDepth::kSpare);
    workspaces_.PutBack(std::move(long_idle));
  }

  // What those that are leased have kept for containers; of open ones when their cycle ends.
  void TrimLeased() noexcept {
    std::array<WorkspaceCore*, 16> cores;
    const uint64_t visit = workspaces_.BeginVisit();
    for (bool more = true; more;) {
      size_t begun = 0;
      more = workspaces_.Visit(visit, cores.size(), [&](Workspace& workspace) {
        WorkspaceCore* const core = workspace.core();
        if (!core->BeginTrimBlocks()) return false;
        cores[begun++] = core;  // is there until it is trimmed; the workspace may go
        return true;
      });
      for (size_t i = 0; i < begun; ++i) cores[i]->EndTrimBlocks();
    }
  }

  WorkspacePoolStats StatsWith(const PoolMemory::Usage& usage) const noexcept {
    const auto totals = workspaces_.totals();
    WorkspacePoolStats stats = totals.numbers;
    stats.workspaces = totals.items;
    stats.leased = totals.leased;
    const SharedLearner::Counts learned = state_->learner.counts();
    stats.plans = learned.plans_made;
    stats.plans_improved = learned.plans_improved;
    stats.cycles_not_planned = learned.cycles_not_planned;
    stats.plans_given_up = learned.plans_given_up;
    stats.plans_kept = learned.plans_kept;
    stats.ranges = usage.ranges;
    stats.held_bytes = usage.held_bytes + stats.block_bytes;
    stats.open_bytes = usage.range_bytes;
    stats.most_open_bytes = usage.most_range_bytes;
    return stats;
  }

  const std::string id_;
  const WorkspaceConfig config_;
  const Device device_;
  MemoryOwner& parent_;  // whose the workspaces are, whoever leases first
  std::shared_ptr<PoolState> state_;

  LeaseList<StdSync, Workspace, LeasedWorkspaces> workspaces_;
};

WorkspacePool::WorkspacePool(std::string id, WorkspaceConfig config, Device device)
    : core_(std::make_shared<Core>(std::move(id), std::move(config), device)) {
  core_->Keep();
}

WorkspacePool::~WorkspacePool() { core_->Close(); }

WorkspaceLease WorkspacePool::Lease() { return core_->Lease(); }
const std::string& WorkspacePool::id() const { return core_->id(); }
const WorkspaceConfig& WorkspacePool::config() const { return core_->config(); }
Device WorkspacePool::device() const { return core_->device(); }
WorkspacePoolStats WorkspacePool::stats() const { return core_->stats(); }
void WorkspacePool::Trim() {
  const std::shared_ptr<Core> core = core_;  // a callback may destroy the pool
  core->Trim();
}
void WorkspacePool::FinishPlanSearch() { core_->state().learner.FinishPlanSearch(); }

std::string WorkspacePool::PlanReport() const { return core_->state().learner.Report(); }

void WorkspacePool::SavePlans(const std::string& path) const {
  AtomicFile file(path);
  file.Append(FormatPlans(core_->state().learner.plans(), core_->state().alignment));
  file.Commit();
}

PlansLoaded WorkspacePool::LoadPlans(const std::string& path) {
  PlansLoaded result;
  ParsedPlans parsed = ReadPlans(path, core_->state().alignment);
  if (!parsed.ignored.empty()) {
    result.ignored = std::move(parsed.ignored);
    return result;
  }
  result.plans = core_->state().learner.Load(std::move(parsed.cycles), path,
                                             MostBelievedPlanBytes(core_->owner(), core_->device()),
                                             &result.ignored);
  return result;
}

void WorkspaceLease::Release() noexcept {
  if (workspace_ == nullptr) return;
  core_->Return(std::move(workspace_));
  core_ = nullptr;
}

Workspace& PooledScope::workspace() const {
  if (!lease_) ThrowFailedPrecondition("scope of a pool: was closed before, or moved from");
  return *lease_;
}

}  // namespace tidepool
