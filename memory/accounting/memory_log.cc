#include "tidepool/memory/accounting/memory_log.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/memory/io/atomic_file.h"

namespace tidepool {
namespace {

int64_t NowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

MemoryLogOptions Validated(MemoryLogOptions options) {
  if (options.capacity == 0) {
    ThrowInvalidArgument("MemoryLog: found capacity 0, expected at least 1 sample");
  }
  return options;
}

template <typename Memory>
MemoryLog::Row RowOf(const Memory& memory, std::string owner) {
  MemoryLog::Row row;
  row.device = memory.device;
  row.owner = std::move(owner);
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    row.bytes[kind] = memory.kinds[kind].current_bytes;
    row.total += row.bytes[kind];
  }
  return row;
}

std::string Field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

MemoryLog::MemoryLog(MemoryLogOptions options)
    : options_(Validated(std::move(options))), origin_(NowNanoseconds()) {
  peaks_.push_back({Host(), std::make_unique<PeakScope>(Host())});
}

void MemoryLog::Sample(std::string label) {
  Entry entry;
  entry.label = std::move(label);
  entry.seconds = static_cast<double>(NowNanoseconds() - origin_) * 1e-9;
  entry.resident_bytes = ResidentBytes();
  std::lock_guard<std::mutex> lock(mutex_);
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  for (const DeviceMemory& device : snapshot.devices) {
    Row row = RowOf(device, "");
    auto peak = std::find_if(peaks_.begin(), peaks_.end(),
                             [&](const Peak& known) { return known.device == device.device; });
    // A device seen for the first time has had at least what it has now.
    row.peak = peak != peaks_.end() ? std::max(peak->scope->peak_bytes(), row.total) : row.total;
    auto next = std::make_unique<PeakScope>(device.device);
    if (peak != peaks_.end()) {
      peak->scope = std::move(next);
    } else {
      peaks_.push_back({device.device, std::move(next)});
    }
    entry.rows.push_back(std::move(row));
  }
  for (const std::string& path : options_.owners) {
    for (const OwnerMemory& owner : snapshot.owners) {
      if (owner.owner == path && owner.tag.empty()) entry.rows.push_back(RowOf(owner, path));
    }
  }
  if (entries_.size() < options_.capacity) {
    entries_.push_back(std::move(entry));
  } else {
    entries_[static_cast<size_t>(sampled_) % options_.capacity] = std::move(entry);
  }
  ++sampled_;
}

std::vector<MemoryLog::Entry> MemoryLog::entries() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Entry> entries = entries_;
  if (sampled_ > static_cast<int64_t>(entries.size())) {
    std::rotate(entries.begin(), entries.begin() + sampled_ % static_cast<int64_t>(entries.size()),
                entries.end());
  }
  return entries;
}

int64_t MemoryLog::dropped() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return sampled_ - static_cast<int64_t>(entries_.size());
}

std::string MemoryLog::ToCsv() const {
  std::string csv = "label,seconds,resident_bytes,device,owner";
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    absl::StrAppend(
        &csv, ",",
        absl::StrReplaceAll(MemoryKindName(static_cast<MemoryKind>(kind)), {{" ", "_"}}));
  }
  csv += ",total,peak\n";
  for (const Entry& entry : entries()) {
    for (const Row& row : entry.rows) {
      absl::StrAppend(&csv, Field(entry.label), ",");
      AppendFixed(&csv, entry.seconds, 6);
      absl::StrAppend(&csv, ",", entry.resident_bytes, ",", DeviceName(row.device), ",",
                      Field(row.owner));
      for (const int64_t bytes : row.bytes) absl::StrAppend(&csv, ",", bytes);
      absl::StrAppend(&csv, ",", row.total, ",");
      if (row.owner.empty()) absl::StrAppend(&csv, row.peak);
      csv += "\n";
    }
  }
  return csv;
}

void MemoryLog::WriteCsv(const std::string& path) const {
  AtomicFile file(path);
  file.Append(ToCsv());
  file.Commit();
}

}  // namespace tidepool
