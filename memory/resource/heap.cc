#include "tidepool/memory/resource/heap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {
namespace {

// Nothing is given back for the sake of a size that no machine has.
constexpr size_t kMostPlausibleBytes = size_t{1} << 46;

MemoryOwner& OwnerOr(MemoryOwner* owner) {
  return owner != nullptr ? *owner : MemoryOwner::Process();
}

}  // namespace

void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, DeviceProvider& provider,
                   MemoryOwner* owner) {
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryTracker& tracker = MemoryTracker::Global();
  const Device device = provider.device();
  const int64_t counted = static_cast<int64_t>(std::min(bytes, SIZE_MAX / 4));
  const bool plausible = bytes <= kMostPlausibleBytes;
  std::byte* data = nullptr;
  auto take = [&] {
    data = provider.Allocate(bytes, std::max(alignment, provider.traits().alignment));
    return data != nullptr;
  };
  // Most often nobody has set a limit: there is nothing to ask before.
  const bool reserves = plausible && budget.limited();
  if (reserves) budget.Reserve(device, OwnerOr(owner), counted, "a heap array");
  if (!plausible || !(take() || (Reclaimer::Global().ReclaimUnderPressure(counted) > 0 && take()))) {
    if (reserves) budget.Release(device, OwnerOr(owner), counted);
    throw OutOfMemoryError(absl::StrCat("heap: ", provider.name(), " refused ", bytes,
                                        " bytes aligned to ", alignment, " for ",
                                        MemoryKindName(kind), " memory"),
                           tracker.Snapshot().ToString());
  }
  bool is_counted = true;
  try {
    if (reserves) {
      tracker.Add(device, kind, counted, owner);
    } else {
      is_counted = budget.CountWithoutLimits(device, kind, OwnerOr(owner), counted);
    }
  } catch (...) {
    provider.Release(data, bytes);
    if (reserves) budget.Release(device, OwnerOr(owner), counted);
    throw;
  }
  if (!is_counted) {  // a limit has been set meanwhile
    provider.Release(data, bytes);
    return HeapAllocate(bytes, alignment, kind, provider, owner);
  }
  tracker.CountSystemAllocation();
  return data;
}

void HeapRelease(void* data, size_t bytes, MemoryKind kind, DeviceProvider& provider,
                 MemoryOwner* owner) noexcept {
  if (data == nullptr) return;
  provider.Release(static_cast<std::byte*>(data), bytes);
  MemoryTracker::Global().CountSystemRelease();
  MemoryBudget::Global().Uncount(provider.device(), kind, OwnerOr(owner),
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
  MemoryBudget::Global().Uncount(device_, kind_, OwnerOr(owner_), bytes_);
  bytes_ = count_ = 0;
}

}  // namespace tidepool
