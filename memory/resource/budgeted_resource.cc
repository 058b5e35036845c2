#include "tidepool/memory/resource/budgeted_resource.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"

namespace tidepool {

Allocation BudgetedResource::Allocate(size_t bytes, size_t alignment) {
  const size_t footprint = FootprintBytes(bytes, alignment);
  if (footprint > kMostBytes) return Allocation::Refused(Refusal::kImpossible, this, bytes);
  MemoryBudget& budget = MemoryBudget::Global();
  const auto reserved = static_cast<int64_t>(footprint);
  if (const int64_t missing = budget.TryReserve(device(), owner_, reserved); missing > 0) {
    return Allocation::Refused(Refusal::kOverLimit, this, static_cast<size_t>(missing));
  }
  try {
    const Allocation block = upstream().Allocate(bytes, alignment);
    if (!block) budget.Release(device(), owner_, reserved);
    return block;
  } catch (...) {
    budget.Release(device(), owner_, reserved);
    throw;
  }
}

void BudgetedResource::Release(void* token, size_t bytes, size_t alignment) noexcept {
  upstream().Release(token, bytes, alignment);
  MemoryBudget::Global().Release(device(), owner_,
                                 static_cast<int64_t>(FootprintBytes(bytes, alignment)));
}

std::string BudgetedResource::Describe() const {
  return absl::StrCat("the budget of ", owner_.Path(), " over ", upstream().Describe());
}

void BudgetedResource::ThrowRefused(const Allocation& refused, size_t bytes,
                                    size_t alignment) const {
  if (refused.refusal != Refusal::kOverLimit) {
    MemoryResource::ThrowRefused(refused, bytes, alignment);
  }
  MemoryBudget::Global().ThrowOverLimit(device(), owner_,
                                        static_cast<int64_t>(FootprintBytes(bytes, alignment)),
                                        what_, refused.reclaimed_bytes);
}

}  // namespace tidepool
