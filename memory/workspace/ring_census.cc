#include "tidepool/memory/workspace/ring_census.h"

#include "tidepool/memory/provider/fork_handlers.h"
#include "tidepool/memory/workspace/ring_core.h"

namespace tidepool {
namespace {

using RingCensus = internal::Census<RingCore, RingGroup>;

constexpr size_t kEmptyRemembered = 1000;

void Add(RingCore& core, bool alive, RingGroup* group) {
  const RingStats stats = core.stats();
  internal::AddStats(internal::kRingFields, stats, /*counters_only=*/!alive, &group->stats);
  if (!alive) return;
  ++group->alive;
  group->stats.idle += stats.idle;
  group->stats.open += stats.open;
  group->stats.leased += stats.leased;
  group->stats.kept += stats.kept;
}

void AddGroups(const RingGroup& gone, RingGroup* sum) {
  internal::AddStats(internal::kRingFields, gone.stats, /*counters_only=*/true, &sum->stats);
}

RingCensus& TheCensus() {
  static RingCensus* const census = [] {
    static constinit const ForkHandlers handlers{[] { TheCensus().LockForFork(); },
                                                 [] { TheCensus().UnlockAfterFork(); },
                                                 [] { TheCensus().UnlockAfterFork(); }};
    HandleFork(ForkLevel::kRingCensus, &handlers);
    return new RingCensus(
        &Add, &AddGroups, kEmptyRemembered,
        {[](RingCore& core) { core.LockForFork(); },
         [](RingCore& core) { core.UnlockAfterFork(); }});  // outlives every static ring
  }();
  return *census;
}
// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] const RingCensus& at_start = TheCensus();

}  // namespace

std::vector<RingGroup> ReadRings() { return TheCensus().Read(); }

namespace internal {

void JoinCensus(RingCore* core) { TheCensus().Join(core, core->id, core->device); }
void LeaveCensus(RingCore* core) noexcept { TheCensus().Leave(core, core->id, core->device); }

}  // namespace internal

}  // namespace tidepool
