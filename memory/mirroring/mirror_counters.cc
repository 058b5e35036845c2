#include "tidepool/memory/mirroring/mirror_counters.h"

#include <atomic>
#include <map>
#include <mutex>
#include <new>

#include "absl/strings/str_cat.h"

namespace tidepool {
namespace {

struct Counts {
  std::mutex mutex;
  MirrorCounters of_device[kDeviceTypes][kMaxDevicesPerType];
  std::map<const void*, MirrorCounters> of_owner;
};

std::atomic<bool> any_copies{false};

Counts& Global() {
  static Counts& counts = *new Counts;
  return counts;
}

void Add(MirrorCounters& counters, bool to_device, size_t bytes) {
  ++(to_device ? counters.copies_to_device : counters.copies_to_host);
  (to_device ? counters.bytes_to_device : counters.bytes_to_host) += bytes;
}

}  // namespace

void CountMirrorCopy(Device device, const void* owner, bool to_device, size_t bytes) noexcept {
  any_copies.store(true, std::memory_order_relaxed);
  Counts& counts = Global();
  std::lock_guard<std::mutex> lock(counts.mutex);
  Add(counts.of_device[static_cast<int>(device.type)][device.index], to_device, bytes);
  try {
    Add(counts.of_owner[owner], to_device, bytes);
  } catch (const std::bad_alloc&) {
    // The device's count has it.
  }
}

void ForgetMirrorOwner(const void* owner) noexcept {
  if (!any_copies.load(std::memory_order_relaxed)) return;
  Counts& counts = Global();
  std::lock_guard<std::mutex> lock(counts.mutex);
  counts.of_owner.erase(owner);
}

MirrorCounters MirrorCountersOf(const void* owner) {
  if (!any_copies.load(std::memory_order_relaxed)) return {};
  Counts& counts = Global();
  std::lock_guard<std::mutex> lock(counts.mutex);
  const auto it = counts.of_owner.find(owner);
  return it != counts.of_owner.end() ? it->second : MirrorCounters();
}

MirrorCounters MirrorCountersOf(Device device) {
  Counts& counts = Global();
  std::lock_guard<std::mutex> lock(counts.mutex);
  return counts.of_device[static_cast<int>(device.type)][device.index];
}

MirrorCounters TotalMirrorCounters() {
  Counts& counts = Global();
  std::lock_guard<std::mutex> lock(counts.mutex);
  MirrorCounters total;
  for (const auto& devices : counts.of_device) {
    for (const MirrorCounters& one : devices) {
      total.copies_to_host += one.copies_to_host;
      total.bytes_to_host += one.bytes_to_host;
      total.copies_to_device += one.copies_to_device;
      total.bytes_to_device += one.bytes_to_device;
    }
  }
  return total;
}

std::string DescribeMirrorCounters() {
  std::string text;
  for (int type = 0; type < kDeviceTypes; ++type) {
    for (int index = 0; index < kMaxDevicesPerType; ++index) {
      const Device device{static_cast<DeviceType>(type), static_cast<uint8_t>(index)};
      const MirrorCounters counters = MirrorCountersOf(device);
      if (counters.copies_to_host + counters.copies_to_device == 0) continue;
      absl::StrAppend(&text, DeviceName(device), ": ", counters.copies_to_device,
                      " mirror copies to it (", counters.bytes_to_device, " bytes), ",
                      counters.copies_to_host, " back (", counters.bytes_to_host, " bytes)\n");
    }
  }
  return text;
}

}  // namespace tidepool
