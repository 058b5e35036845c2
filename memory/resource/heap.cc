#include "tidepool/memory/resource/heap.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/host_pages.h"

namespace tidepool {

void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind) {
  void* data = nullptr;
  const bool overflow = bytes > SIZE_MAX - kReadableTailBytes;
  if (overflow || posix_memalign(&data, std::max(alignment, sizeof(void*)),
                                 bytes + kReadableTailBytes) != 0) {
    throw OutOfMemoryError(absl::StrCat("heap: malloc refused ", bytes, " bytes aligned to ",
                                        alignment, " for ", MemoryKindName(kind), " memory"),
                           MemoryTracker::Global().Snapshot().ToString());
  }
  MemoryTracker& tracker = MemoryTracker::Global();
  tracker.CountSystemAllocation();
  tracker.Add(Host(), kind, static_cast<int64_t>(bytes));
  return data;
}

void HeapRelease(void* data, size_t bytes, MemoryKind kind) noexcept {
  if (data == nullptr) return;
  std::free(data);
  MemoryTracker& tracker = MemoryTracker::Global();
  tracker.CountSystemRelease();
  tracker.Add(Host(), kind, -static_cast<int64_t>(bytes));
}

}  // namespace tidepool
