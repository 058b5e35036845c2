// What all pools of the process say, by id and device: workspace_census.h for pools.
//
// Each WorkspacePool is in it from its construction until it and all its leases are gone. Its workspaces are
// in the census of workspaces as well, under the pool's id.
//
// Threads: any, beside pools at work; of them only who leases or returns waits, for as long as the workspaces of
// the pool are counted. Counters never fall. Cost: some 100 ns a pool and 10 ns a workspace, under a lock that
// only making and destroying pools waits for.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_POOL_CENSUS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_POOL_CENSUS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/workspace/census.h"
#include "tidepool/memory/workspace/workspace_pool.h"

namespace tidepool {

// All pools of one id on one device.
struct PoolGroup {
  std::string id;
  Device device;
  size_t alive = 0;
  WorkspacePoolStats stats;  // sums: counters include pools that are gone
};

// Sorted by id; many ids as ReadWorkspaces(). Throws std::bad_alloc.
std::vector<PoolGroup> ReadPools();

namespace internal {

inline constexpr StatsField<WorkspacePoolStats> kPoolFields[] = {
    {&WorkspacePoolStats::cycles, true, "cycles", "Cycles that have ended."},
    {&WorkspacePoolStats::failed_cycles, true, "failed_cycles", "Cycles that an exception left."},
    {&WorkspacePoolStats::hits, true, "hits",
     "Requests served from ranges, as of their cycle's end."},
    {&WorkspacePoolStats::misses, true, "misses",
     "Requests that left the plan their cycle followed."},
    {&WorkspacePoolStats::spills, true, "spills", "Requests served from blocks."},
    {&WorkspacePoolStats::leaked_arrays, true, "leaked_arrays",
     "Arrays alive when their cycle ended."},
    {&WorkspacePoolStats::leaked_blocks, true, "leaked_blocks",
     "Blocks of containers alive when their cycle ended."},
    {&WorkspacePoolStats::plans, true, "plans", "Plans made."},
    {&WorkspacePoolStats::plans_improved, true, "plans_improved",
     "Plans bettered by the search in the background."},
    {&WorkspacePoolStats::cycles_not_planned, true, "cycles_not_planned",
     "Cycles that got no plan because plans did not pay."},
    {&WorkspacePoolStats::plans_given_up, true, "plans_given_up",
     "Plans given up because they were far larger than what was alive in their cycles."},
    {&WorkspacePoolStats::plans_kept, false, "plans_kept", "Plans kept now."},
    {&WorkspacePoolStats::ranges, false, "ranges", "Ranges that open cycles have."},
    {&WorkspacePoolStats::held_bytes, false, "held_bytes", "Bytes held from the system."},
    {&WorkspacePoolStats::block_bytes, false, "block_bytes",
     "Of them, kept for blocks of containers."},
    {&WorkspacePoolStats::open_bytes, false, "open_bytes", "Bytes of those ranges."},
    {&WorkspacePoolStats::most_open_bytes, false, "most_open_bytes",
     "The most bytes of ranges that a pool had at once, summed over pools."},
};

// What the census reads of a pool, from any thread and with locks that nobody holds who waits for another one.
class WatchedPool {
 public:
  virtual WorkspacePoolStats StatsInPassing() const noexcept = 0;
  // Those locks, for fork().
  virtual void LockForFork() const noexcept = 0;
  virtual void UnlockAfterFork() const noexcept = 0;

 protected:
  ~WatchedPool() = default;
};

void JoinCensus(const WatchedPool* pool, const std::string& id,
                Device device);  // throws std::bad_alloc
void LeaveCensus(const WatchedPool* pool, const std::string& id, Device device) noexcept;

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_POOL_CENSUS_H_
