// What all rings of the process say, by id and device: workspace_census.h for rings.
//
// Each RingWorkspace is in it from its construction to its destruction.
// Threads: any. Cost: a lock and O(slots) for each ring.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RING_CENSUS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RING_CENSUS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/workspace/census.h"
#include "tidepool/memory/workspace/ring.h"

namespace tidepool {

// All rings of one id on one device.
struct RingGroup {
  std::string id;
  Device device;
  size_t alive = 0;
  RingStats stats;  // sums: counters include rings that are gone
};

// Sorted by id; many ids as ReadWorkspaces(). Throws std::bad_alloc.
std::vector<RingGroup> ReadRings();

namespace internal {

inline constexpr StatsField<RingStats> kRingFields[] = {
    {&RingStats::opened, true, "opened", "Slots opened, temporary ones included."},
    {&RingStats::committed, true, "committed", "Batches committed."},
    {&RingStats::discarded, true, "discarded", "Slots closed without a commit."},
    {&RingStats::temporary, true, "temporary", "Slots opened outside of a full ring."},
    {&RingStats::refused, true, "refused", "TryOpen calls on a full ring."},
    {&RingStats::waits, true, "waits", "Opens that had to wait."},
    {&RingStats::wait_nanoseconds, true, "wait_nanoseconds", "How long they waited, in all."},
    {&RingStats::wake_ups, true, "wake_ups", "Signals sent to waiting producers."},
    {&RingStats::hits, true, "hits", "Requests of batches served from slots."},
    {&RingStats::misses, true, "misses", "Requests that left the plan their batch followed."},
    {&RingStats::spills, true, "spills", "Requests served outside of the slots."},
    {&RingStats::spilled_bytes, true, "spilled_bytes", "Bytes of those requests."},
    {&RingStats::leaked_arrays, true, "leaked_arrays",
     "Arrays alive when their slot was discarded or its last lease released."},
    {&RingStats::plans, true, "plans", "Plans made."},
    {&RingStats::planned_peak_bytes, false, "planned_peak_bytes",
     "Bytes that the plans in use need."},
    {&RingStats::live_lower_bound_bytes, false, "live_lower_bound_bytes",
     "Bytes that no plan could go below."},
    {&RingStats::slot_bytes, false, "slot_bytes", "Learned bytes of a slot."},
};

void JoinCensus(RingCore* core);  // throws std::bad_alloc
void LeaveCensus(RingCore* core) noexcept;

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RING_CENSUS_H_
