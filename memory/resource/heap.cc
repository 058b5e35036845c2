#include "tidepool/memory/resource/heap.h"

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/provider_calls.h"

namespace tidepool {

namespace {

// Where there are limits, or `refused_once`: by the provider just now.
[[gnu::noinline]] void* AllocateByResource(size_t bytes, size_t alignment, MemoryKind kind,
                                           DeviceProvider& provider, MemoryOwner* owner,
                                           bool refused_once) {
  HeapResource heap(provider, kind, owner);
  const Allocation block =
      refused_once ? heap.AllocateAfterRefusal(bytes, alignment) : heap.Allocate(bytes, alignment);
  if (!block) block.refused_by->ThrowRefused(block, bytes, alignment);
  return block.data;
}

}  // namespace

// What its resource does where nobody has set a limit and the provider grants the block, in one
// step; as HeapRelease. Arrays are made and released more often than anything else is done.
void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, DeviceProvider& provider,
                   MemoryOwner* owner) {
  MemoryBudget& budget = MemoryBudget::Global();
  const bool possible =
      bytes <= MemoryResource::kMostBytes && alignment != 0 && (alignment & (alignment - 1)) == 0;
  if (budget.limited() || !possible) [[unlikely]] {
    return AllocateByResource(bytes, alignment, kind, provider, owner, /*refused_once=*/false);
  }
  std::byte* const data = AllocateAligned(provider, bytes, alignment);
  if (data == nullptr) [[unlikely]] {
    provider.ThrowIfLost("heap");
    return AllocateByResource(bytes, alignment, kind, provider, owner, /*refused_once=*/true);
  }
  bool counted;
  try {
    counted = budget.CountWithoutLimits(provider.device(), kind,
                                        owner != nullptr ? *owner : MemoryOwner::Process(),
                                        static_cast<int64_t>(bytes));
  } catch (...) {
    provider.Release(data, bytes);
    throw;
  }
  if (!counted) [[unlikely]] {  // a limit has been set meanwhile
    provider.Release(data, bytes);
    return AllocateByResource(bytes, alignment, kind, provider, owner, /*refused_once=*/false);
  }
  MemoryTracker::Global().CountSystemAllocation();
  return data;
}

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
