// Memory over time: a bounded record of what the ledger said at each change.
//
//   MemoryTimeline timeline({.capacity = 10000, .granularity_bytes = 64 << 10});
//   ... work ...
//   timeline.Stop();
//   WriteFile("memory.json", timeline.ToChromeTrace());   // chrome://tracing, Perfetto
//
// A sample is kept when some kind of memory of a device, or the most in use, moved by the granularity
// or more since that device's last sample; the oldest samples make room for new ones. Memory used inside a workspace's
// cycle is known when the cycle ends or anything else changes: the sample then has the bytes in use
// at that moment and the most there were since the change before. What spill files hold and have moved by then is in each. What waits in
// tiers before the file and has moved by then is a sample of its own beside it, for each device of whose tiers that has changed.
//
// Threads: records all; may be read from any. Cost while it runs: each change of the ledger, and each
// end of a cycle, takes about 100 ns more; nothing when no timeline runs.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TIMELINE_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TIMELINE_H_

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {

struct MemoryTimelineOptions {
  size_t capacity = 4096;            // samples kept; at least 1
  int64_t granularity_bytes = 4096;  // smaller movements are not sampled; at least 1
};

class MemoryTimeline final : private LedgerObserver {
 public:
  struct Sample {
    int64_t nanoseconds = 0;  // since the timeline was made, by a clock that never goes back
    Device device;
    std::array<int64_t, kMemoryKinds> bytes = {};
    int64_t in_use_highest = 0;  // all kinds but kUnreferenced, since the change before
    // Of all spill files: bytes there, bytes that went each way so far, and how long somebody has waited for them so far.
    int64_t spilled_bytes = 0, spill_written_bytes = 0, spill_read_bytes = 0;
    int64_t spill_stall_nanoseconds = 0;
  };
  // All tiers in one device's memory (memory/spill/tier_counters.h): bytes that wait there, bytes that came, returned and went on so far, and
  // how long somebody has waited for their copies so far.
  struct TierSample {
    int64_t nanoseconds = 0;  // of the sample that it was taken with
    Device device;
    int64_t waiting_bytes = 0, came_bytes = 0, returned_bytes = 0, went_on_bytes = 0;
    int64_t stall_nanoseconds = 0;
  };

  // Records from here on. Throws kInvalidArgument for options out of range.
  explicit MemoryTimeline(const MemoryTimelineOptions& options = {},
                          MemoryTracker& tracker = MemoryTracker::Global());
  ~MemoryTimeline() { Stop(); }
  MemoryTimeline(const MemoryTimeline&) = delete;
  MemoryTimeline& operator=(const MemoryTimeline&) = delete;

  void Stop();   // keeps the samples
  void Start();  // goes on after Stop()

  std::vector<Sample> samples() const;           // oldest first
  std::vector<TierSample> tier_samples() const;  // likewise; as many are kept as samples
  int64_t dropped() const;                       // samples that made room for others
  int64_t dropped_tier_samples() const;
  // {"samples":[{"nanoseconds":..,"device":"host","allocated":..,..,"spilled":..,...}],"dropped":0,
  //  "tier_samples":[{"nanoseconds":..,"device":"host","waiting_bytes":..,...}],"dropped_tier_samples":0}
  std::string ToJson() const;
  // Trace events of phase "C" (counters), one track per device and, where there was any, one of spill files and one per device of tiers; times in microseconds.
  std::string ToChromeTrace() const;

 private:
  // The last `capacity` of what was added. All memory is there from the start: recording takes none.
  template <typename Value>
  struct Ring {
    std::vector<Value> kept;
    size_t next = 0;
    int64_t added = 0;
    void Add(const Value& value) noexcept;
    std::vector<Value> Values() const;  // oldest first
    int64_t dropped() const;
  };
  void Observe(const LedgerReading& reading) noexcept override;
  void SampleTiers(int64_t nanoseconds) noexcept;  // with mutex_

  const MemoryTimelineOptions options_;
  MemoryTracker& tracker_;
  const int64_t origin_;

  std::mutex switch_mutex_;  // one Start or Stop at a time
  bool running_ = false;     // guarded by switch_mutex_

  struct LastSample {
    bool known = false;
    std::array<int64_t, kMemoryKinds> bytes = {};
    int64_t in_use_highest = 0;
  };
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  Ring<Sample> ring_;
  Ring<TierSample> tier_ring_;
  std::vector<LastSample> last_;       // by device
  std::vector<TierSample> last_tier_;  // likewise
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TIMELINE_H_
