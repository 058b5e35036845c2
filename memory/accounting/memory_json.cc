// Snapshots as JSON.
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_snapshot.h"
#include "tidepool/memory/io/json_writer.h"

namespace tidepool {
namespace {

constexpr int kIndent = 2;

void UsageMembers(const MemoryUsage& usage, JsonWriter& json) {
  json.BeginObject();
  json.Member("current_bytes", usage.current_bytes);
  json.Member("peak_bytes", usage.peak_bytes);
  json.EndObject();
}

// "total" and "kinds".
template <typename Memory>
void MemoryMembers(const Memory& memory, JsonWriter& json) {
  json.Key("total");
  UsageMembers(memory.total, json);
  json.Key("kinds");
  json.BeginObject();
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    json.Key(MemoryKindName(static_cast<MemoryKind>(kind)));
    UsageMembers(memory.kinds[kind], json);
  }
  json.EndObject();
}

template <typename Counted>
void Counters(const Counted& counted, JsonWriter& json) {
  json.Member("system_allocations", counted.system_allocations);
  json.Member("system_releases", counted.system_releases);
  json.Member("leaked_arrays", counted.leaked_arrays);
}

void SpillWay(const char* name, const SpillWayCounters& way, JsonWriter& json) {
  json.Key(name);
  json.BeginObject();
  json.Member("bytes", way.bytes);
  json.Member("stored_bytes", way.stored_bytes);
  json.Member("transfers", way.transfers);
  json.Member("stalls", way.stalls);
  json.Member("stall_nanoseconds", way.stall_nanoseconds);
  json.Member("dropped", way.dropped);
  json.Member("dropped_bytes", way.dropped_bytes);
  json.EndObject();
}

void SpillTiers(const std::vector<DeviceSpillTier>& tiers, JsonWriter& json) {
  json.Key("spill_tiers");
  json.BeginArray();
  for (const DeviceSpillTier& tier : tiers) {
    const SpillTierCounters& ever = tier.counters;
    json.BeginObject();
    json.Member("tier", DeviceName(tier.device));
    json.Member("waiting_bytes", tier.waiting_bytes);
    json.Member("peak_bytes", tier.peak_bytes);
    json.Member("came", ever.came);
    json.Member("came_bytes", ever.came_bytes);
    json.Member("came_nanoseconds", ever.came_nanoseconds);
    json.Member("returned", ever.returned);
    json.Member("returned_bytes", ever.returned_bytes);
    json.Member("returned_nanoseconds", ever.returned_nanoseconds);
    json.Member("went_on", ever.went_on);
    json.Member("went_on_bytes", ever.went_on_bytes);
    json.Member("passed_by", ever.passed_by);
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace

std::string MemorySnapshot::ToJson() const {
  JsonWriter json(kIndent);
  json.BeginObject();
  Counters(*this, json);
  json.Key("devices");
  json.BeginArray();
  for (const DeviceMemory& memory : devices) {
    json.BeginObject();
    json.Member("device", DeviceName(memory.device));
    MemoryMembers(memory, json);
    json.EndObject();
  }
  json.EndArray();
  json.Key("mirrors");
  json.BeginArray();
  for (const auto& [device, counters] : mirrors) {
    json.BeginObject();
    json.Member("device", DeviceName(device));
    json.Member("copies_to_device", counters.copies_to_device);
    json.Member("bytes_to_device", counters.bytes_to_device);
    json.Member("avoided_to_device", counters.avoided_to_device);
    json.Member("copies_to_host", counters.copies_to_host);
    json.Member("bytes_to_host", counters.bytes_to_host);
    json.Member("avoided_to_host", counters.avoided_to_host);
    json.EndObject();
  }
  json.EndArray();
  json.Member("host_fallbacks", host_fallbacks);
  json.Key("spilled");
  json.BeginObject();
  json.Member("tier", "file");
  json.Member("used_bytes", spilled.used_bytes);
  json.Member("peak_bytes", spilled.peak_bytes);
  json.Member("failures", spilled.failures);
  SpillWay("written", spilled.written, json);
  SpillWay("read", spilled.read, json);
  json.EndObject();
  SpillTiers(spill_tiers, json);
  json.Key("owners");
  json.BeginArray();
  for (const OwnerMemory& memory : owners) {
    json.BeginObject();
    json.Member("device", DeviceName(memory.device));
    json.Member("owner", memory.owner);
    json.Member("tag", memory.tag);
    json.Member("own_bytes", memory.own_bytes);
    if (memory.merged > 0) json.Member("merged", memory.merged);
    MemoryMembers(memory, json);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return std::move(json).Take();
}

std::string MemoryDifference::ToJson() const {
  JsonWriter json(kIndent);
  json.BeginObject();
  Counters(*this, json);
  json.Key("changes");
  json.BeginArray();
  for (const Line& line : lines) {
    json.BeginObject();
    json.Member("device", DeviceName(line.device));
    json.Member("owner", line.owner);
    json.Member("tag", line.tag);
    json.Member("kind", MemoryKindName(line.kind));
    json.Member("current_bytes", line.current_bytes);
    json.Member("peak_bytes", line.peak_bytes);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return std::move(json).Take();
}

}  // namespace tidepool
