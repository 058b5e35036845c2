#include "tidepool/memory/mirroring/mirror_counters.h"

#include <atomic>
#include <map>
#include <mutex>
#include <new>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {
namespace {

struct Counts {
  std::mutex mutex;
  MirrorCounters of_device[kDevicePlaces];
  std::map<const void*, MirrorCounters> of_owner;
};

std::atomic<bool> any_copies{false};
std::atomic<uint64_t> avoided[2][kDevicePlaces] = {};  // to the host, to the device
std::atomic<uint64_t> host_fallbacks{0};

Counts& Global() {
  static Counts& counts = []() -> Counts& {
    static constinit const ForkHandlers handlers{[] { Global().mutex.lock(); },
                                                 [] { Global().mutex.unlock(); },
                                                 [] { Global().mutex.unlock(); }};
    HandleFork(ForkLevel::kMirrorCounts, &handlers);
    return *new Counts;
  }();
  return counts;
}
// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] const Counts& at_start = Global();

void Add(MirrorCounters& counters, bool to_device, size_t bytes) {
  ++(to_device ? counters.copies_to_device : counters.copies_to_host);
  (to_device ? counters.bytes_to_device : counters.bytes_to_host) += bytes;
}

}  // namespace

void CountMirrorCopy(Device device, const void* owner, bool to_device, size_t bytes) noexcept {
  any_copies.store(true, std::memory_order_relaxed);
  Counts& counts = Global();
  std::lock_guard<std::mutex> lock(counts.mutex);
  Add(counts.of_device[DevicePlace("mirror counters", device)], to_device, bytes);
  try {
    Add(counts.of_owner[owner], to_device, bytes);
  } catch (const std::bad_alloc&) {
    // The device's count has it.
  }
}

void CountMirrorAvoided(Device device, bool to_device) noexcept {
  avoided[to_device ? 1 : 0][DevicePlace("mirror counters", device)].fetch_add(
      1, std::memory_order_relaxed);
}

void CountHostFallback() noexcept { host_fallbacks.fetch_add(1, std::memory_order_relaxed); }
uint64_t TotalHostFallbacks() { return host_fallbacks.load(std::memory_order_relaxed); }

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
  const int place = DevicePlace("mirror counters", device);
  std::lock_guard<std::mutex> lock(counts.mutex);
  MirrorCounters counters = counts.of_device[place];
  counters.avoided_to_host = avoided[0][place].load(std::memory_order_relaxed);
  counters.avoided_to_device = avoided[1][place].load(std::memory_order_relaxed);
  return counters;
}

std::vector<DeviceMirrorCounters> MirrorCountersByDevice() {
  std::vector<DeviceMirrorCounters> all;
  ForEachPossibleDevice([&](Device device) {
    const MirrorCounters counters = MirrorCountersOf(device);
    if (counters.any()) all.push_back({device, counters});
  });
  return all;
}

MirrorCounters TotalMirrorCounters() {
  MirrorCounters total;
  for (const auto& [device, one] : MirrorCountersByDevice()) {
    total.copies_to_host += one.copies_to_host;
    total.bytes_to_host += one.bytes_to_host;
    total.copies_to_device += one.copies_to_device;
    total.bytes_to_device += one.bytes_to_device;
    total.avoided_to_host += one.avoided_to_host;
    total.avoided_to_device += one.avoided_to_device;
  }
  return total;
}

std::string DescribeMirrorCounters(const std::vector<DeviceMirrorCounters>& all,
                                   uint64_t fallbacks) {
  std::string text;
  for (const auto& [device, counters] : all) {
    absl::StrAppend(&text, DeviceName(device), ": ", counters.copies_to_device,
                    " mirror copies to it (", counters.bytes_to_device, " bytes), ",
                    counters.copies_to_host, " back (", counters.bytes_to_host, " bytes); ",
                    counters.avoided_to_device, " and ", counters.avoided_to_host,
                    " had no need to be\n");
  }
  if (fallbacks > 0) {
    absl::StrAppend(&text, "operators meant for a device that ran on the host: ", fallbacks, "\n");
  }
  return text;
}

std::string DescribeMirrorCounters() {
  return DescribeMirrorCounters(MirrorCountersByDevice(), TotalHostFallbacks());
}

}  // namespace tidepool
