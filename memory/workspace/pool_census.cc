#include "tidepool/memory/workspace/pool_census.h"

#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {
namespace {

using PoolCensus = internal::Census<const internal::WatchedPool, PoolGroup>;

constexpr size_t kEmptyRemembered = 1000;

void Add(const internal::WatchedPool& pool, bool alive, PoolGroup* group) {
  const WorkspacePoolStats stats = pool.StatsInPassing();
  internal::AddStats(internal::kPoolFields, stats, /*counters_only=*/!alive, &group->stats);
  if (!alive) return;
  ++group->alive;
  group->stats.workspaces += stats.workspaces;
  group->stats.leased += stats.leased;
}

void AddGroups(const PoolGroup& gone, PoolGroup* sum) {
  internal::AddStats(internal::kPoolFields, gone.stats, /*counters_only=*/true, &sum->stats);
}

PoolCensus& TheCensus() {
  static PoolCensus* const census = [] {
    static constinit const ForkHandlers handlers{[] { TheCensus().LockForFork(); },
                                                 [] { TheCensus().UnlockAfterFork(); },
                                                 [] { TheCensus().UnlockAfterFork(); }};
    HandleFork(ForkLevel::kPoolCensus, &handlers);
    return new PoolCensus(&Add, &AddGroups, kEmptyRemembered,
                          {[](const internal::WatchedPool& pool) { pool.LockForFork(); },
                           [](const internal::WatchedPool& pool) {
                             pool.UnlockAfterFork();
                           }});  // outlives every static pool
  }();
  return *census;
}
// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] const PoolCensus& at_start = TheCensus();

}  // namespace

std::vector<PoolGroup> ReadPools() { return TheCensus().Read(); }

namespace internal {

void JoinCensus(const WatchedPool* pool, const std::string& id, Device device) {
  TheCensus().Join(pool, id, device);
}
void LeaveCensus(const WatchedPool* pool, const std::string& id, Device device) noexcept {
  TheCensus().Leave(pool, id, device);
}

}  // namespace internal

}  // namespace tidepool
