// Snapshots as JSON. Apart, so that the JSON library is compiled here only.
#include <string>

#include "nlohmann/json.hpp"
#include "tidepool/memory/accounting/memory_snapshot.h"

namespace tidepool {
namespace {

using Json = nlohmann::ordered_json;

// Names come from users and may be no UTF-8.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Json UsageJson(const MemoryUsage& usage) {
  return {{"current_bytes", usage.current_bytes}, {"peak_bytes", usage.peak_bytes}};
}

template <typename Memory>
Json KindsJson(const Memory& memory) {
  Json kinds = Json::object();
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    kinds[MemoryKindName(static_cast<MemoryKind>(kind))] = UsageJson(memory.kinds[kind]);
  }
  return kinds;
}

}  // namespace

std::string MemorySnapshot::ToJson() const {
  Json json;
  json["system_allocations"] = system_allocations;
  json["system_releases"] = system_releases;
  json["leaked_arrays"] = leaked_arrays;
  json["devices"] = Json::array();
  for (const DeviceMemory& memory : devices) {
    json["devices"].push_back({{"device", DeviceName(memory.device)},
                               {"total", UsageJson(memory.total)},
                               {"kinds", KindsJson(memory)}});
  }
  json["mirrors"] = Json::array();
  for (const auto& [device, counters] : mirrors) {
    json["mirrors"].push_back({{"device", DeviceName(device)},
                               {"copies_to_device", counters.copies_to_device},
                               {"bytes_to_device", counters.bytes_to_device},
                               {"avoided_to_device", counters.avoided_to_device},
                               {"copies_to_host", counters.copies_to_host},
                               {"bytes_to_host", counters.bytes_to_host},
                               {"avoided_to_host", counters.avoided_to_host}});
  }
  json["host_fallbacks"] = host_fallbacks;
  json["owners"] = Json::array();
  for (const OwnerMemory& memory : owners) {
    json["owners"].push_back({{"device", DeviceName(memory.device)},
                              {"owner", memory.owner},
                              {"tag", memory.tag},
                              {"own_bytes", memory.own_bytes},
                              {"total", UsageJson(memory.total)},
                              {"kinds", KindsJson(memory)}});
  }
  return Dump(json);
}

std::string MemoryDifference::ToJson() const {
  Json json;
  json["system_allocations"] = system_allocations;
  json["system_releases"] = system_releases;
  json["leaked_arrays"] = leaked_arrays;
  json["changes"] = Json::array();
  for (const Line& line : lines) {
    json["changes"].push_back({{"device", DeviceName(line.device)},
                               {"owner", line.owner},
                               {"tag", line.tag},
                               {"kind", MemoryKindName(line.kind)},
                               {"current_bytes", line.current_bytes},
                               {"peak_bytes", line.peak_bytes}});
  }
  return Dump(json);
}

}  // namespace tidepool
