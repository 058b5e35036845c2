// What spill files (spill_file.h) hold and have moved, of one file or of all of the process: bytes and transfers by direction,
// how often and how long somebody waited for one, and what was moved in vain.
//
// Threads: any. Cost: an addition or two for each transfer.
#ifndef TIDEPOOL_MEMORY_SPILL_SPILL_COUNTERS_H_
#define TIDEPOOL_MEMORY_SPILL_SPILL_COUNTERS_H_

#include <cstdint>
#include <string>

namespace tidepool {

// One direction, ever.
struct SpillWayCounters {
  int64_t transfers = 0, bytes = 0;  // done; bytes as asked for
  int64_t stored_bytes = 0;  // of these, as they are in the file: fewer where blocks were packed
  // Transfers that were not done when somebody needed them, and for how long they kept him. Of one that is begun ahead of use it
  // is a misprediction: it was begun too late.
  int64_t stalls = 0, stall_nanoseconds = 0;
  // Begun, and given up before anybody asked for the result: moved in vain, a misprediction as well.
  int64_t dropped = 0, dropped_bytes = 0;

  double stall_seconds() const { return static_cast<double>(stall_nanoseconds) * 1e-9; }
  bool any() const { return transfers + stalls + dropped > 0; }
};

struct SpillCounters {
  int64_t used_bytes = 0;  // in the files now, in whole pages
  int64_t peak_bytes = 0;  // at most at once; of all files together
  int64_t failures = 0;    // transfers that ended with an error, ever
  SpillWayCounters written, read;

  bool any() const { return peak_bytes > 0 || failures > 0 || written.any() || read.any(); }
};

// Of all files of the process since it began, those that are gone included.
SpillCounters TotalSpillCounters() noexcept;
// Three lines, "spill files ..."; empty where there was nothing.
std::string DescribeSpillCounters(const SpillCounters& counters);

namespace internal {

// For spill files. A change of what all of them have moved.
void CountSpilled(bool written, const SpillWayCounters& change) noexcept;
void CountSpillFailure() noexcept;
void CountSpillUse(int64_t bytes) noexcept;

}  // namespace internal
}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_SPILL_COUNTERS_H_
