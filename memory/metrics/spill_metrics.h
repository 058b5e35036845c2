// The families of metrics.h that tell of spill files and of what is spilled.
//
// Threads: any, each with a writer of its own. Cost: a few hundred bytes of text.
#ifndef TIDEPOOL_MEMORY_METRICS_SPILL_METRICS_H_
#define TIDEPOOL_MEMORY_METRICS_SPILL_METRICS_H_

#include <vector>

#include "tidepool/memory/metrics/exposition_writer.h"
#include "tidepool/memory/spill/spill_counters.h"
#include "tidepool/memory/spill/tier_counters.h"

namespace tidepool::internal {

// `files`: of all files. `tiers`: of each device that has any. Plans of spillable arrays are those of the process.
void WriteSpillMetrics(const SpillCounters& files, const std::vector<DeviceSpillTier>& tiers,
                       ExpositionWriter& text);

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_METRICS_SPILL_METRICS_H_
