// WorkspacePool: workspaces for a service, where any number of threads serve requests of mixed shapes.
//
//   WorkspacePool pool("requests");
//   // on each thread, for each request:
//   PooledScope scope(pool);   // a cycle in some workspace of the pool: what is allocated lives here
//   ...
//
// What one thread's request has taught all know at once: a kind of request (the sizes it asks for, in their
// order) is learned once, whoever serves it. The workspaces have no pages of their own. A cycle takes a range of
// the pool's memory when its first request tells what it is, as large as the plan of that kind (the largest of
// those that begin alike), and gives it back at its end: what the pool holds is what was open at once, not what
// every thread ever needed. Planned requests take no lock; a cycle takes one for its workspace, one for its range
// and one to be learned from, each for tens of nanoseconds.
//
// A kind that is met for the first time is served from blocks, and planned at its end; where requests never
// repeat, plans are made of what comes a second time only, and the others are served from free ranges
// (workspace.h, "Streams that no plan fits" in docs/design.md).
//
// Held is what cycles need at once: blocks lie where no range is, and those of cycles that were
// learned go when memory is taken for their ranges, or 40 cycles after. What no cycle has reached
// in the last 512 goes back to the system in steps, half of it with every 256th cycle, and so does
// what lies below ranges that stay open, where more than twice what was open at once is held (and 8
// MiB). Of memory that was soon needed again it takes up to 1,024 and 8,192 cycles, so that cycles
// in turns do not ask the system each time. Where memory is asked for, and where it goes back, no
// lock is held: callbacks of memory events and of the Reclaimer may let go of arrays of any pool,
// and other threads go on.
//
// Blocks of containers (memory/pmr) are each workspace's own: what it needed of them at once in its last 64
// cycles. One that was not leased while 256 cycles of others ended gives them back, one workspace
// with about every 16th cycle that ends, also where all of these are one lease's; all do so at
// Trim() and when the Reclaimer asks.
//
// Threads: everything may be called from any thread. A lease is one thread's at a time: while its workspace is
// closed it may be moved to another thread and go back from there; a PooledScope stays on its thread, as a
// WorkspaceScope does. Errors: as Workspace.
// fork(): a child may make and use pools of its own, and those that no other thread was using at the fork. One
// that another thread was using may be locked for ever in the child: its cycles, leases that go back, stats()
// and Trim() wait there. Its destruction, MetricsText() and the Reclaimer do not wait for it.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_POOL_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_config.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {

// Since the pool was made, and of this moment; of all its workspaces together.
struct WorkspacePoolStats {
  size_t workspaces = 0;            // made so far and kept
  size_t leased = 0;                // of them, now
  uint64_t cycles = 0;              // ended
  uint64_t failed_cycles = 0;       // left by an exception, or open when their workspace went back
  uint64_t hits = 0;                // requests served from ranges
  uint64_t misses = 0;              // requests a plan existed for but could not be followed
  uint64_t spills = 0;              // requests served from blocks
  uint64_t leaked_arrays = 0;       // alive when their cycle ended
  uint64_t leaked_blocks = 0;       // of containers (memory/pmr), likewise
  uint64_t plans = 0;               // made so far
  uint64_t plans_improved = 0;      // by the search on the background thread
  uint64_t cycles_not_planned = 0;  // though no plan serves them, because plans did not pay
  uint64_t plans_given_up = 0;  // because they were far larger than what was alive in their cycles
  size_t plans_kept = 0;        // now
  size_t ranges = 0;            // that open cycles have of the pool's memory
  size_t held_bytes = 0;        // from the system
  size_t block_bytes = 0;       // of them, kept by workspaces for blocks of containers
  size_t open_bytes = 0;        // of them, in ranges of open cycles
  size_t most_open_bytes = 0;   // at once, ever
};

class WorkspaceLease;

class WorkspacePool {
 public:
  // `config`: policy_learning kTraining, policy_allocation kStrict (or kAlways, as long as one looks for a
  // mistake: nothing is learned), policy_spill kReallocate, without initial_size, min_size, a mapped file or a
  // ring, as WorkspaceConfig::Inference() is; else kInvalidArgument with the reasons. max_size is of one cycle.
  // Throws as Workspace does.
  explicit WorkspacePool(std::string id, WorkspaceConfig config = WorkspaceConfig::Inference(),
                         Device device = Host());
  // Leases that are out stay valid, and their memory with them.
  ~WorkspacePool();
  WorkspacePool(const WorkspacePool&) = delete;
  WorkspacePool& operator=(const WorkspacePool&) = delete;

  // A closed workspace that is the caller's until the lease goes. The one that came back last, or a new one:
  // there are as many as were ever leased at a time, or were giving blocks back meanwhile. Throws OutOfMemoryError and std::bad_alloc.
  WorkspaceLease Lease();

  // As it was made, and what there is of it now.
  const std::string& id() const;
  const WorkspaceConfig& config() const;
  Device device() const;
  WorkspacePoolStats stats() const;

  // Gives back memory that no open cycle uses, and workspaces that nobody leases. Plans stay. Leased
  // ones stay too; what those in a cycle keep for containers goes at its end. Below
  // ranges of open cycles whole pages of free ranges of 1 MiB and more go, where the device gives
  // back parts. Any callback may call it, in the middle of it too: what a Trim() or the Reclaimer
  // is giving back at that moment is left to that.
  void Trim();
  // As Workspace's, of what all its workspaces have learned; cycles may be open meanwhile.
  void SavePlans(const std::string& path) const;
  PlansLoaded LoadPlans(const std::string& path);
  void FinishPlanSearch();
  // Likewise; cycles are counted in all its workspaces.
  std::string PlanReport() const;

 private:
  friend class WorkspaceLease;
  class Core;
  std::shared_ptr<Core> core_;
};

// The hold on a workspace of a pool. It goes back when its holder goes; one that is open then, which is a mistake
// and reported on stderr, is not used again and ends with its scopes.
class [[nodiscard]] WorkspaceLease {
 public:
  WorkspaceLease() = default;
  WorkspaceLease(WorkspaceLease&& other) noexcept
      : core_(std::move(other.core_)), workspace_(std::move(other.workspace_)) {}
  // The workspace it had goes back.
  WorkspaceLease& operator=(WorkspaceLease&& other) noexcept {
    if (this != &other) {
      Release();
      core_ = std::move(other.core_);
      workspace_ = std::move(other.workspace_);
    }
    return *this;
  }
  ~WorkspaceLease() { Release(); }

  // The workspace goes back now; empty afterwards. Nothing happens to an empty one.
  void Release() noexcept;

  // Whether there is a workspace: not of a default-made, released or moved one, of which none may
  // be asked for.
  explicit operator bool() const { return workspace_ != nullptr; }
  // What concerns pages and plans (Trim, SavePlans, ...) is the pool's: kFailedPrecondition here.
  Workspace& operator*() const { return *workspace_; }
  Workspace* operator->() const { return workspace_.get(); }

 private:
  friend class WorkspacePool;
  WorkspaceLease(std::shared_ptr<WorkspacePool::Core> core, std::unique_ptr<Workspace> workspace)
      : core_(std::move(core)), workspace_(std::move(workspace)) {}

  std::shared_ptr<WorkspacePool::Core> core_;
  std::unique_ptr<Workspace> workspace_;
};

// One cycle in a workspace of a pool; threads and order as WorkspaceScope.
class [[nodiscard]] PooledScope {
 public:
  [[nodiscard]] explicit PooledScope(WorkspacePool& pool) : lease_(pool.Lease()), scope_(*lease_) {}
  PooledScope(PooledScope&& other) = default;
  PooledScope& operator=(PooledScope&& other) noexcept {
    scope_ = std::move(other.scope_);  // first: a workspace goes back when it is closed
    lease_ = std::move(other.lease_);
    return *this;
  }
  // Ends the cycle and gives the workspace back. Throws as WorkspaceScope::Close().
  void Close() {
    scope_.Close();
    lease_.Release();
  }
  // Throws kFailedPrecondition after Close().
  Workspace& workspace() const;

 private:
  WorkspaceLease lease_;
  WorkspaceScope scope_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_POOL_H_
