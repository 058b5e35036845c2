// Before a refusal is final, the Reclaimer gives back what is missing, wherever it lies, and the
// request is made again: as long as anything comes back (reclaimer.h). Impossible requests move
// nothing.
//
// The Reclaimer's callbacks run in the middle of the allocation. Threads: as what it wraps.
#ifndef TIDEPOOL_MEMORY_RESOURCE_RECLAIMING_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_RECLAIMING_RESOURCE_H_

#include <cstddef>
#include <string>

#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class ReclaimingResource final : public ResourceWrapper {
 public:
  // `reclaimer` null: the global one.
  explicit ReclaimingResource(MemoryResource& upstream, Reclaimer* reclaimer = nullptr)
      : ResourceWrapper(upstream), reclaimer_(reclaimer) {}

  Allocation Allocate(size_t bytes, size_t alignment) override {
    return AllocateAfter(upstream().Allocate(bytes, alignment), bytes, alignment);
  }
  // What becomes of the first answer of what is wrapped.
  Allocation AllocateAfter(const Allocation& first, size_t bytes, size_t alignment) {
    if (first || first.refusal == Refusal::kImpossible) return first;
    return Retry(first, bytes, alignment);
  }
  void Release(void* token, size_t bytes, size_t alignment) noexcept override {
    upstream().Release(token, bytes, alignment);
  }
  std::string Describe() const override { return upstream().Describe() + ", after reclaiming"; }

 private:
  Allocation Retry(const Allocation& refused, size_t bytes, size_t alignment);

  Reclaimer* const reclaimer_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_RECLAIMING_RESOURCE_H_
