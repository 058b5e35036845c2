#include "tidepool/memory/spill/spill_counters.h"

#include <atomic>
#include <cinttypes>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/io/append_format.h"

namespace tidepool {
namespace {

struct Way {
  std::atomic<int64_t> transfers{0}, bytes{0}, stored_bytes{0}, stalls{0}, stall_nanoseconds{0},
      dropped{0}, dropped_bytes{0};

  SpillWayCounters Read() const noexcept {
    const auto of = [](const std::atomic<int64_t>& counter) {
      return counter.load(std::memory_order_relaxed);
    };
    return {of(transfers),         of(bytes),   of(stored_bytes), of(stalls),
            of(stall_nanoseconds), of(dropped), of(dropped_bytes)};
  }
};

constinit Way ways[2];  // [written]
constinit std::atomic<int64_t> used{0}, peak{0}, failed{0};

void Add(std::atomic<int64_t>& counter, int64_t by) noexcept {
  if (by != 0) counter.fetch_add(by, std::memory_order_relaxed);
}

}  // namespace

SpillCounters TotalSpillCounters() noexcept {
  SpillCounters all;
  all.used_bytes = used.load(std::memory_order_relaxed);
  all.peak_bytes = peak.load(std::memory_order_relaxed);
  all.failures = failed.load(std::memory_order_relaxed);
  all.written = ways[1].Read();
  all.read = ways[0].Read();
  return all;
}

std::string DescribeSpillCounters(const SpillCounters& counters) {
  if (!counters.any()) return "";
  std::string out = absl::StrCat("spill files: ", counters.used_bytes, " bytes there, at most ",
                                 counters.peak_bytes, "; ", counters.failures, " failures\n");
  for (const auto& [name, way] :
       {std::pair<const char*, const SpillWayCounters&>("written", counters.written),
        {"read", counters.read}}) {
    AppendFormat(&out,
                 "spill files, %s: %" PRId64 " bytes (%" PRId64 " in the file) in %" PRId64
                 " transfers; %" PRId64 " were waited for, %.3f s; %" PRId64 " bytes of %" PRId64
                 " in vain\n",
                 name, way.bytes, way.stored_bytes, way.transfers, way.stalls, way.stall_seconds(),
                 way.dropped_bytes, way.dropped);
  }
  return out;
}

namespace internal {

void CountSpilled(bool written, const SpillWayCounters& change) noexcept {
  Way& way = ways[written];
  Add(way.transfers, change.transfers);
  Add(way.bytes, change.bytes);
  Add(way.stored_bytes, change.stored_bytes);
  Add(way.stalls, change.stalls);
  Add(way.stall_nanoseconds, change.stall_nanoseconds);
  Add(way.dropped, change.dropped);
  Add(way.dropped_bytes, change.dropped_bytes);
}

void CountSpillFailure() noexcept { Add(failed, 1); }

void CountSpillUse(int64_t bytes) noexcept {
  const int64_t now = used.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = peak.load(std::memory_order_relaxed);
  while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

}  // namespace internal
}  // namespace tidepool
