// What all workspaces of the process say, for whoever watches a program from outside: by id and device, as
// ids repeat on threads and come again.
//
// Each Workspace is in it from its construction to its destruction; slots of rings are not
// (ring_census.h). Nothing is kept alive by it.
//
// Threads: any, beside workspaces at work; then numbers are somewhat behind, and not all of one moment.
// Counters never fall. Cost: some 100 ns a workspace, under a lock that only making and destroying
// workspaces waits for.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CENSUS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CENSUS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/workspace/census.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {

// All workspaces of one id on one device.
struct WorkspaceGroup {
  std::string id;
  Device device;
  size_t alive = 0;
  size_t open = 0;
  WorkspaceStats stats;  // sums: counters include workspaces that are gone
};

// Sorted by id. Of ids without a workspace 1000 are remembered, then they are one group, "(others)".
// Throws std::bad_alloc.
std::vector<WorkspaceGroup> ReadWorkspaces();

namespace internal {

inline constexpr StatsField<WorkspaceStats> kWorkspaceFields[] = {
    {&WorkspaceStats::cycles, true, "cycles", "Cycles that have ended."},
    {&WorkspaceStats::failed_cycles, true, "failed_cycles", "Cycles that an exception left."},
    {&WorkspaceStats::hits, true, "hits",
     "Requests served from the pages, as of the last cycle's end."},
    {&WorkspaceStats::misses, true, "misses", "Requests that left the plan their cycle followed."},
    {&WorkspaceStats::spills, true, "spills", "Requests served outside of the pages."},
    {&WorkspaceStats::spilled_bytes, true, "spilled_bytes", "Bytes of those requests."},
    {&WorkspaceStats::leaked_arrays, true, "leaked_arrays", "Arrays alive when their cycle ended."},
    {&WorkspaceStats::leaked_blocks, true, "leaked_blocks",
     "Blocks of containers alive when their cycle ended."},
    {&WorkspaceStats::findings, true, "findings", "Findings of the cycle detector."},
    {&WorkspaceStats::plans, true, "plans", "Plans made."},
    {&WorkspaceStats::plans_improved, true, "plans_improved",
     "Plans bettered by the search in the background."},
    {&WorkspaceStats::plan_switches, true, "plan_switches",
     "Times a cycle changed its plan, because it turned out to be another than was expected."},
    {&WorkspaceStats::cycles_not_planned, true, "cycles_not_planned",
     "Cycles that got no plan because plans did not pay."},
    {&WorkspaceStats::plans_given_up, true, "plans_given_up",
     "Plans given up because they were far larger than what was alive in their cycles."},
    {&WorkspaceStats::relocations, true, "relocations", "Growths that moved the pages."},
    {&WorkspaceStats::host_fallbacks, true, "host_fallbacks",
     "Operators meant for the device that ran on the host."},
    {&WorkspaceStats::mirror_copies_to_host, true, "mirror_copies_to_host",
     "Copies of arrays on a device to the host."},
    {&WorkspaceStats::mirror_bytes_to_host, true, "mirror_bytes_to_host", "Bytes of those copies."},
    {&WorkspaceStats::mirror_copies_to_device, true, "mirror_copies_to_device",
     "Copies of arrays to their device."},
    {&WorkspaceStats::mirror_bytes_to_device, true, "mirror_bytes_to_device",
     "Bytes of those copies."},
    {&WorkspaceStats::plans_kept, false, "plans_kept", "Plans kept now."},
    {&WorkspaceStats::size_bytes, false, "size_bytes", "Bytes of pages offered to requests."},
    {&WorkspaceStats::planned_peak_bytes, false, "planned_peak_bytes",
     "Bytes that the plans in use need."},
    {&WorkspaceStats::live_lower_bound_bytes, false, "live_lower_bound_bytes",
     "Bytes that no plan could go below."},
    {&WorkspaceStats::requested_bytes, false, "requested_bytes",
     "Bytes that the planned cycles would need without reuse."},
    {&WorkspaceStats::planned_requests, false, "planned_requests",
     "Requests of the planned cycles."},
    {&WorkspaceStats::block_bytes, false, "block_bytes", "Bytes kept for blocks of containers."},
};

void JoinCensus(WorkspaceCore* core);  // throws std::bad_alloc
void LeaveCensus(WorkspaceCore* core) noexcept;

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CENSUS_H_
