#include "tidepool/memory/profile/pytorch_snapshot.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/profile/pickle_reader.h"
#include "tidepool/memory/profile/snapshot_entries.h"

namespace tidepool {
namespace {

constexpr uint8_t kAllocatedKind = 0, kUnreferencedKind = 1;

uint32_t Add(ProfileData& data, std::string text) {
  data.strings.push_back(std::move(text));
  return static_cast<uint32_t>(data.strings.size() - 1);
}

// A device is one cycle of the whole recording.
void AddDevice(uint32_t number, SnapshotDevice& state, ProfileData& data) {
  if (state.allocations.empty() && state.seen.empty()) return;
  const auto device = static_cast<uint32_t>(data.devices.size());
  data.devices.push_back(absl::StrCat("cuda:", number));
  data.tiers.push_back("device memory");
  for (const SnapshotAllocation& allocation :
       state.allocations) {  // where the snapshot does not say its segment
    state.seen.push_back({allocation.address, allocation.size});
  }
  const SegmentLayout layout(state.seen);
  const auto place = static_cast<uint32_t>(data.places.size());
  data.places.push_back(
      {Add(data, absl::StrCat("caching allocator of cuda:", number)), device, layout.total()});
  const uint32_t reserved = Add(data, "(reserved)");
  int64_t now = state.reserved_at_start, most = now;
  if (now > 0) data.steps.push_back({0, now, device, reserved, kUnreferencedKind, true});
  for (const auto& [time, bytes] : state.reserved) {
    data.steps.push_back({time, bytes, device, reserved, kUnreferencedKind, false});
    most = std::max(most, now += bytes);
  }
  ProfileCycleKind kind;
  kind.place = place;
  kind.owner = reserved;
  kind.duration = data.duration;
  std::stable_sort(
      state.allocations.begin(), state.allocations.end(), [](const auto& a, const auto& b) {
        return a.born != b.born ? a.born < b.born : a.flags > b.flags;  // what was there first
      });
  std::vector<int64_t> births;
  for (const SnapshotAllocation& allocation : state.allocations) births.push_back(allocation.born);
  for (size_t i = 0; i < state.allocations.size(); ++i) {
    const SnapshotAllocation& allocation = state.allocations[i];
    ProfileArray array;
    array.born = allocation.born;
    array.died = std::min(allocation.died, data.duration);
    array.bytes = allocation.requested;
    array.taken = allocation.size;
    array.offset = layout.OffsetOf(allocation.address);
    array.site = allocation.site;
    array.owner = allocation.owner;
    array.place = place;
    array.kind = kAllocatedKind;
    array.flags = allocation.flags;
    kind.requests.push_back(array);
    const auto after = std::lower_bound(births.begin(), births.end(), array.died) - births.begin();
    kind.released_after.push_back(
        allocation.died == kAliveAtEnd
            ? static_cast<uint32_t>(births.size())
            : static_cast<uint32_t>(std::max<ptrdiff_t>(after, static_cast<ptrdiff_t>(i) + 1)));
  }
  MeasureCycleKind(kind);
  data.device_peaks.push_back(std::max(most, kind.bound));
  data.cycle_kinds.push_back(std::move(kind));
  data.cycles.push_back(
      {static_cast<uint32_t>(data.cycle_kinds.size() - 1), 1, 0, 0, data.duration});
}

std::string BytesOf(const std::string& path) {
  FileReader file(path);
  if (file.size() > Pickle::kMostBytes) {
    ThrowInvalidArgument(absl::StrCat(file.name(), ": found ", file.size(),
                                      " bytes, expected a snapshot of at most ",
                                      Pickle::kMostBytes));
  }
  std::string bytes(file.size(), '\0');
  file.ReadExactly(absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()),
                   "the snapshot");
  return bytes;
}

}  // namespace

ProfileData ParsePyTorchSnapshot(std::string_view bytes, const std::string& what) {
  SnapshotEntries entries = ReadSnapshotEntries(bytes, what);
  ProfileData data;
  data.title = "PyTorch memory snapshot";
  data.subtitle = OneLine(what);
  data.kinds = {"allocated", "unreferenced"};
  data.strings = std::move(entries.strings);
  data.duration = entries.duration;
  for (auto& [number, device] : entries.devices) AddDevice(number, device, data);
  std::stable_sort(data.steps.begin(), data.steps.end(),
                   [](const auto& a, const auto& b) { return a.time < b.time; });
  if (entries.others > 0)
    data.notes.push_back(
        absl::StrCat(entries.others, " entries of the trace are of other actions"));
  if (entries.out_of_memory > 0)
    data.notes.push_back(absl::StrCat(entries.out_of_memory, " requests found no memory"));
  return data;
}

ProfileData ReadPyTorchSnapshot(const std::string& path) {
  return ParsePyTorchSnapshot(BytesOf(path), path);
}

Record ParsePyTorchSnapshotAsRecord(std::string_view bytes, const std::string& what) {
  const SnapshotEntries entries = ReadSnapshotEntries(bytes, what);
  Record record;
  record.source = record::Source::kForeign;
  std::vector<std::pair<int64_t, RecordEvent>> events;  // with the entry's number
  uint64_t block = 0;
  for (const auto& [number, device] : entries.devices) {
    if (device.allocations.empty()) continue;
    RecordEvent event;
    event.thread = record.threads++;
    event.device = record.Name(absl::StrCat("cuda:", number));
    for (const SnapshotAllocation& allocation : device.allocations) {
      event.what = RecordEvent::What::kAllocate;
      event.block = ++block;
      event.bytes = static_cast<uint64_t>(allocation.requested);
      event.owner = record.Name(entries.strings[allocation.owner]);
      event.nanoseconds = allocation.born;
      if (allocation.flags == ProfileArray::kAtStart) {
        record.live.push_back(event);
      } else {
        events.emplace_back(allocation.born_entry, event);
      }
      if (allocation.died == kAliveAtEnd) continue;
      event.what = RecordEvent::What::kFree;
      event.nanoseconds = allocation.died;
      events.emplace_back(allocation.died_entry, event);
    }
  }
  // Devices are in order by time, the entries of one as they stand.
  std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    return a.second.nanoseconds != b.second.nanoseconds
               ? a.second.nanoseconds < b.second.nanoseconds
               : a.first < b.first;
  });
  uint64_t number = 0;
  for (RecordEvent& event : record.live) event.number = ++number;
  for (auto& [entry, event] : events) {
    event.number = ++number;
    record.events.push_back(event);
  }
  return record;
}

Record ReadPyTorchSnapshotAsRecord(const std::string& path) {
  return ParsePyTorchSnapshotAsRecord(BytesOf(path), path);
}

bool IsPyTorchSnapshot(const std::string& path) {
  FileReader file(path);
  // A pickle begins with the opcode of its protocol; a record with a text.
  std::byte first[2] = {};
  if (!file.is_regular() || file.size() < sizeof(first)) return false;
  file.ReadExactly(absl::MakeSpan(first), "the first bytes");
  return first[0] == std::byte{0x80} && first[1] >= std::byte{2} && first[1] <= std::byte{5};
}

}  // namespace tidepool
