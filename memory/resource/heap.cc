#include "tidepool/memory/resource/heap.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/host_pages.h"

namespace tidepool {

namespace {

MemoryOwner& OwnerOr(MemoryOwner* owner) {
  return owner != nullptr ? *owner : MemoryOwner::Process();
}

}  // namespace

void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, MemoryOwner* owner) {
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryTracker& tracker = MemoryTracker::Global();
  const int64_t counted = static_cast<int64_t>(bytes);
  void* data = nullptr;
  auto take = [&] {
    return posix_memalign(&data, std::max(alignment, sizeof(void*)), bytes + kReadableTailBytes) ==
           0;
  };
  const bool exists = bytes <= SIZE_MAX / 4;
  if (exists) budget.Reserve(Host(), OwnerOr(owner), counted, "a heap array");
  // Nothing is given back for the sake of a size that no machine has.
  const bool plausible = bytes < size_t{1} << 46;
  if (!exists || !(take() || (plausible && Reclaimer::Global().ReclaimUnderPressure(counted) > 0 &&
                              take()))) {
    if (exists) budget.Release(Host(), OwnerOr(owner), counted);
    throw OutOfMemoryError(absl::StrCat("heap: malloc refused ", bytes, " bytes aligned to ",
                                        alignment, " for ", MemoryKindName(kind), " memory"),
                           tracker.Snapshot().ToString());
  }
  try {
    tracker.Add(Host(), kind, counted, owner);
  } catch (...) {
    std::free(data);
    budget.Release(Host(), OwnerOr(owner), counted);
    throw;
  }
  tracker.CountSystemAllocation();
  return data;
}

void HeapRelease(void* data, size_t bytes, MemoryKind kind, MemoryOwner* owner) noexcept {
  if (data == nullptr) return;
  std::free(data);
  MemoryTracker& tracker = MemoryTracker::Global();
  tracker.CountSystemRelease();
  tracker.Add(Host(), kind, -static_cast<int64_t>(bytes), owner);
  MemoryBudget::Global().Release(Host(), OwnerOr(owner), static_cast<int64_t>(bytes));
}

}  // namespace tidepool
