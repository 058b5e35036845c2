#include "tidepool/memory/workspace/workspace_pool.h"

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/workspace/plan_file.h"
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
         "policy_spill is not kReallocate: a pool grows as it learns; limit it by max_size or a MemoryBudget");
  refuse(config.initial_size != 0 || config.min_size != 0,
         "initial_size and min_size are of a workspace's own pages");
  refuse(config.policy_location != LocationPolicy::kRam, "policy_location kMmap: a file is one workspace's");
  refuse(config.policy_reset != ResetPolicy::kBlockLeft,
         "policy_reset kEndOfBufferReached is a ring: use RingWorkspace");
  if (reasons.empty()) return;
  ThrowInvalidArgument(absl::StrCat("workspace pool [", id, "]: illegal configuration: ",
                                    absl::StrJoin(reasons, "; ")));
}

// Of cores that are gone, or of all.
void AddTo(WorkspacePoolStats& sum, const WorkspaceCore& core) {
  const WorkspaceCounters& counters = core.counters;
  sum.cycles += counters.cycles;
  sum.failed_cycles += counters.failed_cycles;
  sum.hits += core.CurrentHits();
  sum.misses += counters.misses;
  sum.spills += counters.spills;
  sum.leaked_arrays += counters.leaked_arrays;
  sum.leaked_blocks += counters.leaked_blocks;
}

// A workspace that was not leased while so many came back gives back what it has kept for containers.
constexpr uint64_t kReturnsKept = 256;

}  // namespace

class WorkspacePool::Core : public std::enable_shared_from_this<WorkspacePool::Core> {
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
        parent_.Child(absl::StrCat("workspace ", id_)));
  }

  WorkspaceLease Lease() {
    std::unique_ptr<Workspace> workspace;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        workspace = std::move(idle_.back());
        idle_.pop_back();
        ++leased_;
        untouched_ = std::min(untouched_, idle_.size());
        long_idle_ = std::min(long_idle_, idle_.size());
      }
    }
    if (workspace == nullptr) workspace = Make();
    return WorkspaceLease(shared_from_this(), std::move(workspace));
  }

  void Return(std::unique_ptr<Workspace> workspace) noexcept {
    std::unique_ptr<Workspace> long_idle = PutBack(std::move(workspace));
    if (long_idle == nullptr) return;
    long_idle->core()->Reclaim(ReclaimDepth::kSpare);
    PutBackLongIdle(std::move(long_idle));
  }

  // Those that nobody leases go, and from now on all that come back.
  void Close() noexcept {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    DropIdle();
  }

  void Trim() noexcept {
    DropIdle();
    state_->memory.Trim();
  }

  WorkspacePoolStats stats() const {
    WorkspacePoolStats stats;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stats = gone_;
      stats.workspaces = all_.size();
      stats.leased = leased_;
      for (const WorkspaceCore* core : all_) {
        AddTo(stats, *core);
        stats.block_bytes += core->counters.block_bytes;
      }
    }
    const SharedLearner::Counts learned = state_->learner.counts();
    stats.plans = learned.plans_made;
    stats.plans_improved = learned.plans_improved;
    stats.cycles_not_planned = learned.cycles_not_planned;
    stats.plans_kept = learned.plans_kept;
    const PoolMemory::Usage usage = state_->memory.usage();
    stats.held_bytes = usage.held_bytes + stats.block_bytes;
    stats.open_bytes = usage.range_bytes;
    stats.most_open_bytes = usage.most_range_bytes;
    return stats;
  }

  const std::string& id() const { return id_; }
  const WorkspaceConfig& config() const { return config_; }
  Device device() const { return device_; }
  PoolState& state() const { return *state_; }

 private:
  // Returns one that is to give memory back, most often none.
  std::unique_ptr<Workspace> PutBack(std::unique_ptr<Workspace> workspace) noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    --leased_;
    const bool open = workspace->is_open();
    if (open) {
      std::fprintf(stderr, "tidepool: a workspace of pool [%s] goes back while it is open\n",
                   id_.c_str());
    }
    if (!open && !closed_) {
      idle_.push_back(std::move(workspace));  // there is room: Make() has seen to it
    } else {
      Forget(*workspace);
    }
    return TakeLongIdle();
  }

  std::unique_ptr<Workspace> Make() {
    const MemoryOwnerScope owner(parent_);
    auto workspace = Workspace::OfPool(id_, config_, device_, state_);
    std::lock_guard<std::mutex> lock(mutex_);
    if (all_.size() == all_.capacity()) all_.reserve(2 * all_.size() + 8);
    idle_.reserve(all_.capacity());
    all_.push_back(workspace->core());
    ++leased_;
    return workspace;
  }
  // Whoever leases takes from the end: those that were not leased for long are at the front. With the lock.
  std::unique_ptr<Workspace> TakeLongIdle() noexcept {
    if (++returns_ % kReturnsKept == 0) {
      long_idle_ = untouched_;
      untouched_ = idle_.size();
    }
    while (long_idle_ > 0) {
      const auto at = idle_.begin() + static_cast<std::ptrdiff_t>(--long_idle_);
      if ((*at)->core()->counters.block_bytes == 0) continue;
      std::unique_ptr<Workspace> taken = std::move(*at);
      idle_.erase(at);
      return taken;
    }
    return nullptr;
  }
  void PutBackLongIdle(std::unique_ptr<Workspace> workspace) noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return Forget(*workspace);
    const size_t at = std::min(long_idle_, idle_.size());
    idle_.insert(idle_.begin() + static_cast<std::ptrdiff_t>(at), std::move(workspace));
  }
  // Its numbers are kept. A cycle that is open ends as a failed one.
  void Forget(const Workspace& workspace) noexcept {
    const WorkspaceCore& core = *workspace.core();
    const uint64_t left_open = core.generation() - core.counters.cycles;
    AddTo(gone_, core);
    gone_.cycles += left_open;
    gone_.failed_cycles += left_open;
    std::erase(all_, workspace.core());
  }
  // Each ends without the lock.
  void DropIdle() noexcept {
    for (;;) {
      std::unique_ptr<Workspace> workspace;
      std::lock_guard<std::mutex> lock(mutex_);
      if (idle_.empty()) return;
      workspace = std::move(idle_.back());
      idle_.pop_back();
      untouched_ = long_idle_ = 0;
      Forget(*workspace);
    }
  }

  const std::string id_;
  const WorkspaceConfig config_;
  const Device device_;
  MemoryOwner& parent_;  // whose the workspaces are, whoever leases first
  std::shared_ptr<PoolState> state_;

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;  // room for all that are leased too
  std::vector<const WorkspaceCore*> all_;
  WorkspacePoolStats gone_;  // of workspaces that are no more
  size_t leased_ = 0;
  uint64_t returns_ = 0;
  size_t untouched_ = 0;  // so many of idle_, at its front, were there since the window began
  size_t long_idle_ = 0;  // and so many for all of one before, and may have memory to give back
  bool closed_ = false;
};

WorkspacePool::WorkspacePool(std::string id, WorkspaceConfig config, Device device)
    : core_(std::make_shared<Core>(std::move(id), std::move(config), device)) {}

WorkspacePool::~WorkspacePool() { core_->Close(); }

WorkspaceLease WorkspacePool::Lease() { return core_->Lease(); }
const std::string& WorkspacePool::id() const { return core_->id(); }
const WorkspaceConfig& WorkspacePool::config() const { return core_->config(); }
Device WorkspacePool::device() const { return core_->device(); }
WorkspacePoolStats WorkspacePool::stats() const { return core_->stats(); }
void WorkspacePool::Trim() { core_->Trim(); }
void WorkspacePool::FinishPlanSearch() { core_->state().learner.FinishPlanSearch(); }

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
  result.plans = core_->state().learner.Load(std::move(parsed.cycles), path, &result.ignored);
  return result;
}

void WorkspaceLease::Release() noexcept {
  if (workspace_ == nullptr) return;
  core_->Return(std::move(workspace_));
  core_ = nullptr;
}

}  // namespace tidepool
