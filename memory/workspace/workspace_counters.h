// The numbers of one workspace: written by whoever has it open or maintains it, read by any thread.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_COUNTERS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_COUNTERS_H_

#include <cstddef>
#include <cstdint>

#include "tidepool/memory/sync/single_writer.h"

namespace tidepool {

// What each means: WorkspaceStats (workspace.h).
struct WorkspaceCounters {
  SingleWriter<uint64_t> cycles;
  SingleWriter<uint64_t> failed_cycles;
  SingleWriter<uint64_t> leaked_arrays;
  SingleWriter<uint64_t> leaked_blocks;
  SingleWriter<size_t> block_bytes;
  SingleWriter<uint64_t> hits;  // without the requests that merely followed the plan, see Settle()
  SingleWriter<uint64_t> misses;
  SingleWriter<uint64_t> spills;
  SingleWriter<uint64_t> spilled_bytes;
  SingleWriter<uint64_t> host_fallbacks;
  SingleWriter<uint64_t> relocations;

  SingleWriter<uint64_t> plans;
  SingleWriter<uint64_t> plans_improved;
  SingleWriter<uint64_t> cycles_not_planned;
  SingleWriter<uint64_t> plans_given_up;
  SingleWriter<uint64_t> plan_switches;
  SingleWriter<size_t> plans_kept;
  SingleWriter<size_t> planned_peak_bytes;
  SingleWriter<size_t> live_lower_bound_bytes;
  SingleWriter<size_t> requested_bytes;
  SingleWriter<size_t> planned_requests;

  SingleWriter<size_t> size;  // what the pages offer to requests
  SingleWriter<size_t> bytes_last_cycle;
  SingleWriter<size_t> peak_cycle_bytes;

  // Of this cycle; cursor and bytes like hits.
  SingleWriter<size_t> cursor;  // bytes of the pages handed out
  SingleWriter<size_t> bytes_this_cycle;
  SingleWriter<size_t> cycle_spills;
  SingleWriter<size_t> cycle_spilled_bytes;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_COUNTERS_H_
