#include "tidepool/memory/accounting/memory_timeline.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/memory/io/json_writer.h"

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

}  // namespace

MemoryTimeline::MemoryTimeline(const MemoryTimelineOptions& options, MemoryTracker& tracker)
    : options_(Validated(options)),
      tracker_(tracker),
      origin_(NowNanoseconds()),
      ring_(options.capacity),
      last_(kDevicePlaces) {
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
  const SpillCounters spilled = TotalSpillCounters();
  ring_[next_] = {NowNanoseconds() - origin_,
                  reading.device,
                  reading.current,
                  reading.in_use_highest,
                  spilled.used_bytes,
                  spilled.written.bytes,
                  spilled.read.bytes,
                  spilled.written.stall_nanoseconds + spilled.read.stall_nanoseconds};
  next_ = (next_ + 1) % ring_.size();
  ++recorded_;
  last = {true, reading.current, reading.in_use_highest};
}

std::vector<MemoryTimeline::Sample> MemoryTimeline::samples() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Sample> samples;
  const size_t count = std::min<size_t>(static_cast<size_t>(recorded_), ring_.size());
  samples.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    samples.push_back(ring_[(next_ + ring_.size() - count + i) % ring_.size()]);
  }
  return samples;
}

int64_t MemoryTimeline::dropped() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::max<int64_t>(0, recorded_ - static_cast<int64_t>(ring_.size()));
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
  json.EndObject();
  return std::move(json).Take();
}

std::string MemoryTimeline::ToChromeTrace() const {
  const int64_t process = getpid();
  JsonWriter json;
  json.BeginObject();
  json.Key("traceEvents");
  json.BeginArray();
  for (const Sample& sample : samples()) {
    const auto begin = [&](const std::string& name) {
      json.BeginObject();
      json.Member("name", name);
      json.Member("ph", "C");
      json.Key("ts");  // in microseconds
      std::string microseconds;
      AppendFormat(&microseconds, "%" PRId64 ".%03" PRId64, sample.nanoseconds / 1000,
                   sample.nanoseconds % 1000);
      json.Literal(microseconds);
      json.Member("pid", process);
      json.Key("args");
      json.BeginObject();
    };
    const auto end = [&] {
      json.EndObject();
      json.EndObject();
    };
    begin(absl::StrCat("memory ", DeviceName(sample.device)));
    KindMembers(sample, json);
    end();
    begin(absl::StrCat("memory in use at most ", DeviceName(sample.device)));
    json.Member("bytes", sample.in_use_highest);
    end();
    if (sample.spill_written_bytes == 0) continue;
    begin("spill files");
    SpillMembers(sample, json);
    end();
  }
  json.EndArray();
  json.Member("displayTimeUnit", "ns");
  json.EndObject();
  return std::move(json).Take();
}

}  // namespace tidepool
