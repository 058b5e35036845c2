// A recording as trace events in JSON, which https://ui.perfetto.dev and chrome://tracing open: a track of counters for
// each device, named with its tier, bytes by kind; a row for each workspace with a slice for each cycle.
#ifndef TIDEPOOL_MEMORY_PROFILE_CHROME_TRACE_H_
#define TIDEPOOL_MEMORY_PROFILE_CHROME_TRACE_H_

#include <cstddef>
#include <string>

#include "tidepool/memory/profile/profile_data.h"

namespace tidepool {

inline constexpr size_t kMostTraceBytes = 100'000'000;  // what viewers open

// What does not fit is merged, first cycles into their peaks, then steps; "otherData" says so. `most_bytes`: at least
// 100,000.
std::string ChromeTrace(const ProfileData& data, size_t most_bytes = kMostTraceBytes);

// The whole file or, on an error (AtomicFile's), nothing.
void WriteChromeTrace(const ProfileData& data, const std::string& path);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_CHROME_TRACE_H_
