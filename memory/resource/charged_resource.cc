#include "tidepool/memory/resource/charged_resource.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {

// The ledger comes last, so that its peaks never hold a block that was refused.
Allocation ChargedResource::AllocateWithinLimits(size_t bytes, size_t alignment) {
  MemoryBudget& budget = MemoryBudget::Global();
  const auto charged = static_cast<int64_t>(bytes);
  budget.KeepToSoftLimits(device(), owner_, charged, what_);
  if (const int64_t missing = budget.TryReserve(device(), owner_, charged); missing > 0) {
    return Allocation::Refused(Refusal::kOverLimit, this, static_cast<size_t>(missing));
  }
  Allocation block;
  try {
    block = upstream().Allocate(bytes, alignment);
    if (block) MemoryTracker::Global().Add(device(), kind_, charged, &owner_);
  } catch (...) {
    if (block) upstream().Release(block.token, bytes, alignment);
    budget.Release(device(), owner_, charged);
    throw;
  }
  if (!block) budget.Release(device(), owner_, charged);
  return block;
}

void ChargedResource::Release(void* token, size_t bytes, size_t alignment) noexcept {
  upstream().Release(token, bytes, alignment);
  MemoryBudget::Global().Uncount(device(), kind_, owner_, static_cast<int64_t>(bytes));
}

std::string ChargedResource::Describe() const {
  return absl::StrCat("the account of ", owner_.Path(), " over ", upstream().Describe());
}

void ChargedResource::ThrowRefused(const Allocation& refused, size_t bytes,
                                   size_t alignment) const {
  if (refused.refusal != Refusal::kOverLimit) {
    MemoryResource::ThrowRefused(refused, bytes, alignment);
  }
  MemoryBudget::Global().ThrowOverLimit(device(), owner_, static_cast<int64_t>(bytes), what_,
                                        refused.reclaimed_bytes);
}

}  // namespace tidepool
