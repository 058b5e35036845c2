#include "tidepool/memory/accounting/memory_timeline.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using Json = nlohmann::ordered_json;

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

Json KindsJson(const MemoryTimeline::Sample& sample) {
  Json json = Json::object();
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    json[MemoryKindName(static_cast<MemoryKind>(kind))] = sample.bytes[kind];
  }
  return json;
}

}  // namespace

MemoryTimeline::MemoryTimeline(const MemoryTimelineOptions& options, MemoryTracker& tracker)
    : options_(Validated(options)),
      tracker_(tracker),
      origin_(NowNanoseconds()),
      ring_(options.capacity),
      last_(kDeviceTypes * kMaxDevicesPerType) {
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
  LastSample& last =
      last_[static_cast<int>(reading.device.type) * kMaxDevicesPerType + reading.device.index];
  int64_t moved = std::abs(reading.in_use_highest - last.in_use_highest);
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    moved = std::max(moved, std::abs(reading.current[kind] - last.bytes[kind]));
  }
  if (last.known && moved < options_.granularity_bytes) return;
  ring_[next_] = {NowNanoseconds() - origin_, reading.device, reading.current,
                  reading.in_use_highest};
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
  Json json;
  json["samples"] = Json::array();
  for (const Sample& sample : samples()) {
    Json one = {{"nanoseconds", sample.nanoseconds}, {"device", DeviceName(sample.device)}};
    one.update(KindsJson(sample));
    one["in_use_highest"] = sample.in_use_highest;
    json["samples"].push_back(std::move(one));
  }
  json["dropped"] = dropped();
  return json.dump();
}

std::string MemoryTimeline::ToChromeTrace() const {
  Json events = Json::array();
  const int64_t process = getpid();
  for (const Sample& sample : samples()) {
    auto event = [&](const char* what, Json values) {
      events.push_back({{"name", absl::StrCat(what, " ", DeviceName(sample.device))},
                        {"ph", "C"},
                        {"ts", static_cast<double>(sample.nanoseconds) / 1000},
                        {"pid", process},
                        {"args", std::move(values)}});
    };
    event("memory", KindsJson(sample));
    event("memory in use at most", {{"bytes", sample.in_use_highest}});
  }
  return Json({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}).dump();
}

}  // namespace tidepool
