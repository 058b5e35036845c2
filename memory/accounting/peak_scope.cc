#include "tidepool/memory/accounting/peak_scope.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"

namespace tidepool {

PeakScope::PeakScope(Device device, MemoryOwner* owner, MemoryTracker& tracker)
    : tracker_(tracker) {
  CheckDevice("PeakScope", device);
  tracker_.Observe(this, device, owner);
}

void PeakScope::End() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return;
    ended_ = true;
  }
  tracker_.StopObserving(this);  // folds what workspaces did until now; not under mutex_
}

void PeakScope::Observe(const LedgerReading& reading) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!started_) {
    started_ = true;
    start_ = peak_ = {reading.current, reading.total, reading.in_use};
    return;
  }
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    peak_.kinds[kind] = std::max(peak_.kinds[kind], reading.highest[kind]);
  }
  peak_.total = std::max(peak_.total, reading.total);
  peak_.in_use = std::max(peak_.in_use, reading.in_use_highest);
}

int64_t PeakScope::peak_bytes(MemoryKind kind) {
  if (!IsMemoryKind(kind)) {
    ThrowInvalidArgument(absl::StrCat("PeakScope: found kind ", static_cast<int>(kind),
                                      ", expected 0 to ", kMemoryKinds - 1));
  }
  return peak().kinds[static_cast<int>(kind)];
}

PeakScope::Bytes PeakScope::start() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return start_;
}

PeakScope::Bytes PeakScope::peak() {
  tracker_.FoldAll();
  std::lock_guard<std::mutex> lock(mutex_);
  return peak_;
}

}  // namespace tidepool
