#include "tidepool/memory/accounting/memory_tracker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr int kAllocatedIndex = static_cast<int>(MemoryKind::kAllocated);
constexpr int kUnreferencedIndex = static_cast<int>(MemoryKind::kUnreferenced);

}  // namespace

const DeviceMemory& MemorySnapshot::operator[](Device device) const {
  for (const DeviceMemory& memory : devices) {
    if (memory.device == device) return memory;
  }
  ThrowNotFound(absl::StrCat("MemorySnapshot: nothing was ever counted on ", DeviceName(device)));
}

std::string MemorySnapshot::ToString() const {
  std::string out = absl::StrFormat("%-10s %-18s %15s %15s\n", "device", "kind", "current bytes",
                                    "peak bytes");
  for (const DeviceMemory& memory : devices) {
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      const MemoryUsage& usage = memory.kinds[kind];
      absl::StrAppendFormat(&out, "%-10s %-18s %15d %15d\n", DeviceName(memory.device),
                            MemoryKindName(static_cast<MemoryKind>(kind)), usage.current_bytes,
                            usage.peak_bytes);
    }
    absl::StrAppendFormat(&out, "%-10s %-18s %15d %15d\n", DeviceName(memory.device), "total",
                          memory.total.current_bytes, memory.total.peak_bytes);
  }
  return out;
}

MemoryTracker& MemoryTracker::Global() {
  static MemoryTracker* const tracker = new MemoryTracker;  // outlives every static array
  return *tracker;
}

MemoryTracker::MemoryTracker() : devices_(kDeviceTypes * kMaxDevicesPerType) {}

void MemoryTracker::Add(Device device, MemoryKind kind, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > 0 || kind == MemoryKind::kAllocated) FoldDevice(device);
  PerDevice& at = At(device);
  at.touched = true;
  at.direct[static_cast<int>(kind)].current_bytes += bytes;
  changes_.fetch_add(1, std::memory_order_relaxed);
  if (bytes > 0) FoldDevice(device);
}

void MemoryTracker::Register(MemoryAccount* account) {
  std::lock_guard<std::mutex> lock(mutex_);
  accounts_.push_back(account);
  At(account->device_).touched = true;
}

void MemoryTracker::Unregister(MemoryAccount* account) {
  std::lock_guard<std::mutex> lock(mutex_);
  FoldDevice(account->device_);
  accounts_.erase(std::remove(accounts_.begin(), accounts_.end(), account), accounts_.end());
  changes_.fetch_add(1, std::memory_order_relaxed);
}

void MemoryTracker::AddOwned(MemoryAccount* account, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  FoldDevice(account->device_);
  account->owned_.store(account->owned_.load(std::memory_order_relaxed) + bytes,
                        std::memory_order_relaxed);
  changes_.fetch_add(1, std::memory_order_relaxed);
  FoldDevice(account->device_);
}

void MemoryTracker::FoldSlow(MemoryAccount* account) {
  std::lock_guard<std::mutex> lock(mutex_);
  FoldDevice(account->device_);
}

void MemoryTracker::FoldDevice(Device device) {
  PerDevice& at = At(device);
  int64_t used_peak = 0;
  int64_t used_now = 0;
  int64_t owned = 0;
  const uint64_t change = changes_.load(std::memory_order_relaxed);
  for (MemoryAccount* account : accounts_) {
    if (account->device_ != device) continue;
    const int64_t used = account->used_.load(std::memory_order_relaxed);
    const int64_t window = account->window_peak_.load(std::memory_order_relaxed);
    used_now += used;
    used_peak += std::max(used, window);
    owned += account->owned_.load(std::memory_order_relaxed);
    const bool same_window = account->folded_at_.load(std::memory_order_relaxed) == change;
    account->folded_peak_.store(
        same_window ? std::max(window, account->folded_peak_.load(std::memory_order_relaxed))
                    : window,
        std::memory_order_relaxed);
    account->folded_at_.store(change, std::memory_order_relaxed);
    account->window_peak_.store(used, std::memory_order_relaxed);
  }
  int64_t total = owned;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    MemoryUsage& usage = at.direct[kind];
    int64_t seen = usage.current_bytes;
    total += usage.current_bytes;
    if (kind == kAllocatedIndex) seen += used_peak;
    if (kind == kUnreferencedIndex) seen += std::max<int64_t>(0, owned - used_now);
    usage.peak_bytes = std::max(usage.peak_bytes, seen);
  }
  at.total_peak = std::max(at.total_peak, total);
}

MemorySnapshot MemoryTracker::Snapshot() {
  std::lock_guard<std::mutex> lock(mutex_);
  MemorySnapshot snapshot;
  snapshot.system_allocations = system_allocations_.load(std::memory_order_relaxed);
  snapshot.system_releases = system_releases_.load(std::memory_order_relaxed);
  for (int index = 0; index < static_cast<int>(devices_.size()); ++index) {
    const Device device{static_cast<DeviceType>(index / kMaxDevicesPerType),
                        static_cast<uint8_t>(index % kMaxDevicesPerType)};
    if (!devices_[index].touched && device != Host()) continue;
    FoldDevice(device);
    DeviceMemory memory{device, devices_[index].direct, {}};
    int64_t used = 0;
    int64_t owned = 0;
    for (const MemoryAccount* account : accounts_) {
      if (account->device_ != device) continue;
      used += account->used_.load(std::memory_order_relaxed);
      owned += account->owned_.load(std::memory_order_relaxed);
    }
    memory.kinds[kAllocatedIndex].current_bytes += used;
    memory.kinds[kUnreferencedIndex].current_bytes += owned - used;
    for (const MemoryUsage& usage : memory.kinds) memory.total.current_bytes += usage.current_bytes;
    memory.total.peak_bytes = devices_[index].total_peak;
    snapshot.devices.push_back(memory);
  }
  return snapshot;
}

void MemoryTracker::ResetPeaks() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (PerDevice& at : devices_) {
    for (MemoryUsage& usage : at.direct) usage.peak_bytes = 0;
    at.total_peak = 0;
  }
  for (MemoryAccount* account : accounts_) {
    account->window_peak_.store(account->used_.load(std::memory_order_relaxed),
                                std::memory_order_relaxed);
  }
  changes_.fetch_add(1, std::memory_order_relaxed);
  for (int index = 0; index < static_cast<int>(devices_.size()); ++index) {
    if (!devices_[index].touched) continue;
    FoldDevice(Device{static_cast<DeviceType>(index / kMaxDevicesPerType),
                      static_cast<uint8_t>(index % kMaxDevicesPerType)});
  }
}

}  // namespace tidepool
