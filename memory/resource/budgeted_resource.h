// Blocks within the budgets of an owner, its device and the process (memory_budget.h): their
// footprints are reserved before what it wraps is asked, and given back with them. The ledger is
// its user's affair.
//
// Threads: as what it wraps. Cost: a lock.
#ifndef TIDEPOOL_MEMORY_RESOURCE_BUDGETED_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_BUDGETED_RESOURCE_H_

#include <cstddef>
#include <string>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class BudgetedResource final : public ResourceWrapper {
 public:
  // `owner` null: the process. `what` ("pages") is named in errors and must stay.
  BudgetedResource(MemoryResource& upstream, MemoryOwner* owner, const char* what)
      : ResourceWrapper(upstream),
        owner_(owner != nullptr ? *owner : MemoryOwner::Process()),
        what_(what) {}

  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  std::string Describe() const override;
  // With the level that lacks most, who holds what, and what would have to go.
  [[noreturn]] void ThrowRefused(const Allocation& refused, size_t bytes,
                                 size_t alignment) const override;

 private:
  MemoryOwner& owner_;
  const char* const what_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_BUDGETED_RESOURCE_H_
