#include "tidepool/memory/accounting/memory_charge.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

void Check(MemoryKind kind, Device device, int64_t bytes) {
  CheckDevice("MemoryCharge", device);
  if (!IsMemoryKind(kind)) {
    ThrowInvalidArgument(absl::StrCat("MemoryCharge: found kind ", static_cast<int>(kind),
                                      ", expected 0 to ", kMemoryKinds - 1));
  }
  if (bytes >= 0 && bytes <= kMostCountedBytes) return;
  ThrowInvalidArgument(
      absl::StrCat("MemoryCharge: found ", bytes, " bytes, expected 0 to ", kMostCountedBytes));
}

}  // namespace

void MemoryCharge::Take() {
  if (bytes_ == 0) return;
  MemoryBudget& budget = MemoryBudget::Global();
  if (!imported_) budget.Reserve(device_, *owner_, bytes_, "memory taken elsewhere");
  try {
    MemoryTracker::Global().AddClaimed(device_, kind_, bytes_, owner_);
  } catch (...) {
    if (!imported_) budget.Release(device_, *owner_, bytes_);
    throw;
  }
}

MemoryCharge::MemoryCharge(MemoryKind kind, int64_t bytes, Device device)
    : owner_(&MemoryOwner::Current()), bytes_(bytes), device_(device), kind_(kind) {
  Check(kind, device, bytes);
  Take();
}

MemoryCharge MemoryCharge::Imported(int64_t bytes, Device device) {
  Check(MemoryKind::kExternal, device, bytes);
  MemoryCharge charge(MemoryKind::kExternal, 0, device);
  charge.imported_ = true;
  charge.bytes_ = bytes;
  try {
    charge.Take();
  } catch (...) {
    charge.bytes_ = 0;
    throw;
  }
  return charge;
}

MemoryCharge::MemoryCharge(const MemoryCharge& other)
    : owner_(other.owner_),
      bytes_(other.bytes_),
      device_(other.device_),
      kind_(other.kind_),
      imported_(other.imported_) {
  Take();  // a constructor that throws runs no destructor: nothing is given back twice
}

MemoryCharge::~MemoryCharge() {
  if (bytes_ == 0) return;
  MemoryTracker::Global().Add(device_, kind_, -bytes_, owner_);
  if (!imported_) MemoryBudget::Global().Release(device_, *owner_, bytes_);
}

}  // namespace tidepool
