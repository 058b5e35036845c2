#include "tidepool/memory/accounting/memory_snapshot.h"

#include <algorithm>
#include <cinttypes>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

// On one line, whatever they are called.
std::string NameOf(const std::string& owner, const std::string& tag) {
  return tag.empty() ? OneLine(owner) : absl::StrCat(OneLine(owner), " #", OneLine(tag));
}

// With how many it stands for.
std::string LabelOf(const OwnerMemory& memory) {
  std::string label = NameOf(memory.owner, memory.tag);
  if (memory.merged > 0) absl::StrAppend(&label, " (", memory.merged, ")");
  return label;
}

// "allocated 4096, unreferenced 128": kinds with bytes now, largest first.
std::string KindsOf(const OwnerMemory& memory) {
  std::vector<std::pair<int64_t, const char*>> held;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    const int64_t bytes = memory.kinds[kind].current_bytes;
    if (bytes != 0) held.emplace_back(bytes, MemoryKindName(static_cast<MemoryKind>(kind)));
  }
  std::sort(held.rbegin(), held.rend());
  std::string out;
  for (const auto& [bytes, name] : held) {
    absl::StrAppend(&out, out.empty() ? "" : ", ", name, " ", bytes);
  }
  return out;
}

template <typename Memory>
void AppendLines(const Memory* before, const Memory& after, const std::string& owner,
                 const std::string& tag, std::vector<MemoryDifference::Line>& lines) {
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    const MemoryUsage was = before != nullptr ? before->kinds[kind] : MemoryUsage{};
    const MemoryUsage is = after.kinds[kind];
    const int64_t current = is.current_bytes - was.current_bytes;
    const int64_t peak = is.peak_bytes - was.peak_bytes;
    if (current == 0 && peak == 0) continue;
    lines.push_back({after.device, owner, tag, static_cast<MemoryKind>(kind), current, peak});
  }
}

}  // namespace

const DeviceMemory& MemorySnapshot::operator[](Device device) const {
  for (const DeviceMemory& memory : devices) {
    if (memory.device == device) return memory;
  }
  ThrowNotFound(absl::StrCat("MemorySnapshot: nothing was ever counted on ", DeviceName(device)));
}

const OwnerMemory& MemorySnapshot::Of(const std::string& owner, const std::string& tag,
                                      Device device) const {
  std::string known;
  for (const OwnerMemory& memory : owners) {
    if (memory.device != device) continue;
    if (memory.owner == owner && memory.tag == tag) return memory;
    absl::StrAppend(&known, known.empty() ? "" : ", ", NameOf(memory.owner, memory.tag));
  }
  ThrowNotFound(absl::StrCat("MemorySnapshot: found no owner [", NameOf(owner, tag), "] on ",
                             DeviceName(device), ", expected one of: ", known));
}

int64_t MemorySnapshot::TaggedBytes(const std::string& tag, Device device) const {
  int64_t bytes = 0;
  for (const OwnerMemory& memory : owners) {
    if (memory.device == device && memory.tag == tag) bytes += memory.total.current_bytes;
  }
  return bytes;
}

std::string MemorySnapshot::ToString() const {
  std::string out;
  AppendFormat(&out, "%-10s %-18s %15s %15s\n", "device", "kind", "current bytes", "peak bytes");
  const auto line = [&](const DeviceMemory& memory, const char* kind, const MemoryUsage& usage) {
    AppendFormat(&out, "%-10s %-18s %15" PRId64 " %15" PRId64 "\n",
                 DeviceName(memory.device).c_str(), kind, usage.current_bytes, usage.peak_bytes);
  };
  for (const DeviceMemory& memory : devices) {
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      line(memory, MemoryKindName(static_cast<MemoryKind>(kind)), memory.kinds[kind]);
    }
    line(memory, "total", memory.total);
  }
  return absl::StrCat(out, DescribeMirrorCounters(mirrors, host_fallbacks),
                      DescribeSpillCounters(spilled), DescribeSpillTiers(spill_tiers));
}

std::string MemorySnapshot::OwnersToString() const {
  std::string out;
  AppendFormat(&out, "%-10s %-36s %15s %15s  %s\n", "device", "owner #tag", "current bytes",
               "peak bytes", "of it");
  for (const OwnerMemory& memory : owners) {
    AppendFormat(&out, "%-10s %-36s %15" PRId64 " %15" PRId64 "  %s\n",
                 DeviceName(memory.device).c_str(), LabelOf(memory).c_str(),
                 memory.total.current_bytes, memory.total.peak_bytes, KindsOf(memory).c_str());
  }
  return out;
}

MemoryDifference Difference(const MemorySnapshot& before, const MemorySnapshot& after) {
  MemoryDifference difference;
  for (const DeviceMemory& memory : after.devices) {
    const auto was = std::find_if(before.devices.begin(), before.devices.end(),
                                  [&](const auto& d) { return d.device == memory.device; });
    AppendLines(was != before.devices.end() ? &*was : nullptr, memory, "", "", difference.lines);
  }
  using Key = std::tuple<DeviceType, uint8_t, std::string, std::string>;
  auto key = [](const OwnerMemory& m) {
    return Key(m.device.type, m.device.index, m.owner, m.tag);
  };
  std::map<Key, const OwnerMemory*> known;
  for (const OwnerMemory& memory : before.owners) known[key(memory)] = &memory;
  for (const OwnerMemory& memory : after.owners) {
    const auto was = known.find(key(memory));
    AppendLines(was != known.end() ? was->second : nullptr, memory, memory.owner, memory.tag,
                difference.lines);
  }
  difference.system_allocations = after.system_allocations - before.system_allocations;
  difference.system_releases = after.system_releases - before.system_releases;
  difference.leaked_arrays = after.leaked_arrays - before.leaked_arrays;
  return difference;
}

int64_t MemoryDifference::CurrentBytes(Device device, MemoryKind kind) const {
  for (const Line& line : lines) {
    if (line.device == device && line.kind == kind && line.owner.empty()) return line.current_bytes;
  }
  return 0;
}

std::string MemoryDifference::ToString() const {
  if (empty()) return "nothing changed\n";
  std::string out;
  AppendFormat(&out, "%-10s %-36s %-18s %15s %15s\n", "device", "owner #tag", "kind",
               "current change", "peak change");
  for (const Line& line : lines) {
    AppendFormat(&out, "%-10s %-36s %-18s %+15" PRId64 " %+15" PRId64 "\n",
                 DeviceName(line.device).c_str(), NameOf(line.owner, line.tag).c_str(),
                 MemoryKindName(line.kind), line.current_bytes, line.peak_bytes);
  }
  absl::StrAppend(&out, "asked of the system ", system_allocations, " times, given back ",
                  system_releases, " times, ", leaked_arrays, " arrays leaked\n");
  return out;
}

}  // namespace tidepool
