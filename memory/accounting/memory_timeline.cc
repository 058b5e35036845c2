#include "tidepool/memory/accounting/memory_timeline.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/memory/spill/spill_counters.h"
#include "tidepool/memory/spill/tier_counters.h"

namespace tidepool {
namespace {

int64_t NowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

MemoryTimelineOptions Validated(const MemoryTimelineOptions& options) {
  if (options.capacity < 1 || options.capacity > (size_t{1} << 28) ||
      options.granularity_bytes < 1) {
    ThrowInvalidArgument(absl::StrCat("MemoryTimeline: found capacity ", options.capacity,
                                      " and granularity_bytes ", options.granularity_bytes,
                                      ", expected 1 to 2^28 samples and at least 1 byte"));
  }
  return options;
}

void KindMembers(const MemoryTimeline::Sample& sample, JsonWriter& json) {
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    json.Member(MemoryKindName(static_cast<MemoryKind>(kind)), sample.bytes[kind]);
  }
}

void SpillMembers(const MemoryTimeline::Sample& sample, JsonWriter& json) {
  json.Member("spilled", sample.spilled_bytes);
  json.Member("spill_written", sample.spill_written_bytes);
  json.Member("spill_read", sample.spill_read_bytes);
  json.Member("spill_stall_nanoseconds", sample.spill_stall_nanoseconds);
}

void TierMembers(const MemoryTimeline::TierSample& sample, JsonWriter& json) {
  json.Member("waiting_bytes", sample.waiting_bytes);
  json.Member("came_bytes", sample.came_bytes);
  json.Member("returned_bytes", sample.returned_bytes);
  json.Member("went_on_bytes", sample.went_on_bytes);
  json.Member("stall_nanoseconds", sample.stall_nanoseconds);
}

// An event up to its arguments, whose members follow. Of one counter.
void BeginCounter(const std::string& name, int64_t nanoseconds, JsonWriter& json) {
  json.BeginObject();
  json.Member("name", name);
  json.Member("ph", "C");
  json.Key("ts");  // in microseconds
  std::string microseconds;
  AppendFormat(&microseconds, "%" PRId64 ".%03" PRId64, nanoseconds / 1000, nanoseconds % 1000);
  json.Literal(microseconds);
  json.Member("pid", int64_t{getpid()});
  json.Key("args");
  json.BeginObject();
}
void EndCounter(JsonWriter& json) {
  json.EndObject();
  json.EndObject();
}

}  // namespace

template <typename Value>
void MemoryTimeline::Ring<Value>::Add(const Value& value) noexcept {
  kept[next] = value;
  next = (next + 1) % kept.size();
  ++added;
}

template <typename Value>
std::vector<Value> MemoryTimeline::Ring<Value>::Values() const {
  std::vector<Value> values;
  const size_t count = std::min<size_t>(static_cast<size_t>(added), kept.size());
  values.reserve(count);
  for (size_t i = 0; i < count; ++i)
    values.push_back(kept[(next + kept.size() - count + i) % kept.size()]);
  return values;
}

template <typename Value>
int64_t MemoryTimeline::Ring<Value>::dropped() const {
  return std::max<int64_t>(0, added - static_cast<int64_t>(kept.size()));
}

MemoryTimeline::MemoryTimeline(const MemoryTimelineOptions& options, MemoryTracker& tracker)
    : options_(Validated(options)),
      tracker_(tracker),
      origin_(NowNanoseconds()),
      ring_{std::vector<Sample>(options.capacity)},
      tier_ring_{std::vector<TierSample>(options.capacity)},
      last_(kDevicePlaces),
      last_tier_(kDevicePlaces) {
  Start();
}

void MemoryTimeline::Start() {
  std::lock_guard<std::mutex> lock(switch_mutex_);
  if (running_) return;
  tracker_.ObserveAllDevices(this);
  running_ = true;
}

void MemoryTimeline::Stop() {
  std::lock_guard<std::mutex> lock(switch_mutex_);
  if (!running_) return;
  tracker_.StopObserving(this);
  running_ = false;
}

void MemoryTimeline::Observe(const LedgerReading& reading) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  LastSample& last = last_[DevicePlace("memory timeline", reading.device)];
  int64_t moved = std::abs(reading.in_use_highest - last.in_use_highest);
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    moved = std::max(moved, std::abs(reading.current[kind] - last.bytes[kind]));
  }
  if (last.known && moved < options_.granularity_bytes) return;
  const int64_t now = NowNanoseconds() - origin_;
  const SpillCounters spilled = TotalSpillCounters();
  ring_.Add({now, reading.device, reading.current, reading.in_use_highest, spilled.used_bytes,
             spilled.written.bytes, spilled.read.bytes,
             spilled.written.stall_nanoseconds + spilled.read.stall_nanoseconds});
  last = {true, reading.current, reading.in_use_highest};
  SampleTiers(now);
}

void MemoryTimeline::SampleTiers(int64_t nanoseconds) noexcept {
  internal::ForEachSpillTier([&](const DeviceSpillTier& tier) {
    const SpillTierCounters& ever = tier.counters;
    const TierSample sample = {nanoseconds,
                               tier.device,
                               tier.waiting_bytes,
                               ever.came_bytes,
                               ever.returned_bytes,
                               ever.went_on_bytes,
                               ever.came_nanoseconds + ever.returned_nanoseconds};
    TierSample& last = last_tier_[DevicePlace("memory timeline", tier.device)];
    const auto moved = [](const TierSample& s) {
      return std::tie(s.waiting_bytes, s.came_bytes, s.returned_bytes, s.went_on_bytes);
    };
    if (moved(sample) == moved(last)) return;
    tier_ring_.Add(sample);
    last = sample;
  });
}

std::vector<MemoryTimeline::Sample> MemoryTimeline::samples() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return ring_.Values();
}

std::vector<MemoryTimeline::TierSample> MemoryTimeline::tier_samples() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return tier_ring_.Values();
}

int64_t MemoryTimeline::dropped() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return ring_.dropped();
}

int64_t MemoryTimeline::dropped_tier_samples() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return tier_ring_.dropped();
}

std::string MemoryTimeline::ToJson() const {
  JsonWriter json;
  json.BeginObject();
  json.Key("samples");
  json.BeginArray();
  for (const Sample& sample : samples()) {
    json.BeginObject();
    json.Member("nanoseconds", sample.nanoseconds);
    json.Member("device", DeviceName(sample.device));
    KindMembers(sample, json);
    json.Member("in_use_highest", sample.in_use_highest);
    SpillMembers(sample, json);
    json.EndObject();
  }
  json.EndArray();
  json.Member("dropped", dropped());
  json.Key("tier_samples");
  json.BeginArray();
  for (const TierSample& sample : tier_samples()) {
    json.BeginObject();
    json.Member("nanoseconds", sample.nanoseconds);
    json.Member("device", DeviceName(sample.device));
    TierMembers(sample, json);
    json.EndObject();
  }
  json.EndArray();
  json.Member("dropped_tier_samples", dropped_tier_samples());
  json.EndObject();
  return std::move(json).Take();
}

std::string MemoryTimeline::ToChromeTrace() const {
  JsonWriter json;
  json.BeginObject();
  json.Key("traceEvents");
  json.BeginArray();
  for (const Sample& sample : samples()) {
    const std::string device = DeviceName(sample.device);
    BeginCounter(absl::StrCat("memory ", device), sample.nanoseconds, json);
    KindMembers(sample, json);
    EndCounter(json);
    BeginCounter(absl::StrCat("memory in use at most ", device), sample.nanoseconds, json);
    json.Member("bytes", sample.in_use_highest);
    EndCounter(json);
    if (sample.spill_written_bytes == 0) continue;
    BeginCounter("spill files", sample.nanoseconds, json);
    SpillMembers(sample, json);
    EndCounter(json);
  }
  for (const TierSample& sample : tier_samples()) {
    BeginCounter(absl::StrCat("spill tier ", DeviceName(sample.device)), sample.nanoseconds, json);
    TierMembers(sample, json);
    EndCounter(json);
  }
  json.EndArray();
  json.Member("displayTimeUnit", "ns");
  json.EndObject();
  return std::move(json).Take();
}

}  // namespace tidepool
