// Each block is charged to an owner: within its budgets, as BudgetedResource, and on the ledger
// under one kind. Bytes are those asked for. The two are entered under one lock while nobody has
// set a limit.
//
// Threads: as what it wraps. Cost: a lock; with limits, two.
#ifndef TIDEPOOL_MEMORY_RESOURCE_CHARGED_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_CHARGED_RESOURCE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class ChargedResource final : public ResourceWrapper {
 public:
  // `owner` null: the process. `what` ("a heap array") is named in errors and must stay.
  ChargedResource(MemoryResource& upstream, MemoryKind kind, MemoryOwner* owner, const char* what)
      : ResourceWrapper(upstream),
        kind_(kind),
        owner_(owner != nullptr ? *owner : MemoryOwner::Process()),
        what_(what),
        device_(upstream.device()) {}

  Device device() const override { return device_; }
  Allocation Allocate(size_t bytes, size_t alignment) override {
    return AllocateFrom(upstream(), bytes, alignment);
  }
  // The same, for who knows the class of what is wrapped: without a virtual call.
  template <typename Upstream>
  Allocation AllocateFrom(Upstream& from, size_t bytes, size_t alignment) {
    if (bytes > kMostBytes) return Allocation::Refused(Refusal::kImpossible, this, bytes);
    MemoryBudget& budget = MemoryBudget::Global();
    // Most often nobody has set a limit: there is nothing to ask before.
    while (!budget.limited()) {
      const Allocation block = from.Allocate(bytes, alignment);
      if (!block) return block;
      try {
        if (budget.CountWithoutLimits(device_, kind_, owner_, static_cast<int64_t>(bytes))) {
          return block;
        }
      } catch (...) {
        from.Release(block.token, bytes, alignment);
        throw;
      }
      from.Release(block.token, bytes, alignment);  // a limit has been set meanwhile
    }
    return AllocateWithinLimits(bytes, alignment);
  }
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  std::string Describe() const override;
  [[noreturn]] void ThrowRefused(const Allocation& refused, size_t bytes,
                                 size_t alignment) const override;

 private:
  Allocation AllocateWithinLimits(size_t bytes, size_t alignment);

  const MemoryKind kind_;
  MemoryOwner& owner_;
  const char* const what_;
  const Device device_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_CHARGED_RESOURCE_H_
