#include "tidepool/memory/resource/heap.h"

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {

void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, DeviceProvider& provider,
                   MemoryOwner* owner) {
  HeapResource heap(provider, kind, owner);
  const Allocation block = heap.Allocate(bytes, alignment);
  if (!block) block.refused_by->ThrowRefused(block, bytes, alignment);
  return block.data;
}

// What its resource would do, in one step: arrays are released more often than anything else is
// done.
void HeapRelease(void* data, size_t bytes, MemoryKind kind, DeviceProvider& provider,
                 MemoryOwner* owner) noexcept {
  if (data == nullptr) return;
  provider.Release(static_cast<std::byte*>(data), bytes);
  MemoryTracker::Global().CountSystemRelease();
  MemoryBudget::Global().Uncount(provider.device(), kind,
                                 owner != nullptr ? *owner : MemoryOwner::Process(),
                                 static_cast<int64_t>(bytes));
}

void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, Device device,
                   MemoryOwner* owner) {
  DeviceProvider* const provider = FindDeviceProvider(device);
  return HeapAllocate(bytes, alignment, kind,
                      provider != nullptr ? *provider : GetDeviceProvider(device, "heap"), owner);
}

void HeapRelease(void* data, size_t bytes, MemoryKind kind, Device device,
                 MemoryOwner* owner) noexcept {
  HeapRelease(data, bytes, kind, *FindDeviceProvider(device), owner);
}

void HeapReleases::Flush() noexcept {
  if (count_ == 0) return;
  FindDeviceProvider(device_)->ReleaseMany(blocks_, count_);
  MemoryTracker::Global().CountSystemReleases(count_);
  MemoryBudget::Global().Uncount(device_, kind_,
                                 owner_ != nullptr ? *owner_ : MemoryOwner::Process(), bytes_);
  bytes_ = count_ = 0;
}

}  // namespace tidepool
