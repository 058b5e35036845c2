#include "tidepool/memory/resource/heap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, DeviceProvider& provider) {
  void* data = provider.Allocate(bytes, std::max(alignment, provider.traits().alignment));
  if (data == nullptr) {
    throw OutOfMemoryError(absl::StrCat("heap: ", provider.name(), " refused ", bytes,
                                        " bytes aligned to ", alignment, " for ",
                                        MemoryKindName(kind), " memory"),
                           MemoryTracker::Global().Snapshot().ToString());
  }
  MemoryTracker& tracker = MemoryTracker::Global();
  tracker.CountSystemAllocation();
  tracker.Add(provider.device(), kind, static_cast<int64_t>(bytes));
  return data;
}

void HeapRelease(void* data, size_t bytes, MemoryKind kind, DeviceProvider& provider) noexcept {
  if (data == nullptr) return;
  provider.Release(static_cast<std::byte*>(data), bytes);
  MemoryTracker& tracker = MemoryTracker::Global();
  tracker.CountSystemRelease();
  tracker.Add(provider.device(), kind, -static_cast<int64_t>(bytes));
}

void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, Device device) {
  return HeapAllocate(bytes, alignment, kind, GetDeviceProvider(device, "heap"));
}

void HeapRelease(void* data, size_t bytes, MemoryKind kind, Device device) noexcept {
  HeapRelease(data, bytes, kind, *FindDeviceProvider(device));
}

}  // namespace tidepool
