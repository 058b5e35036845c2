// Ranges of whole pages as pools take their chunks: within the budgets of an owner, and the
// Reclaimer is asked before a refusal. The ledger is its user's affair: owned_bytes() are not on
// it.
//
// Threads: any.
#ifndef TIDEPOOL_MEMORY_RESOURCE_PAGES_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_PAGES_RESOURCE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/resource/budgeted_resource.h"
#include "tidepool/memory/resource/memory_resource.h"
#include "tidepool/memory/resource/page_blocks.h"
#include "tidepool/memory/resource/reclaiming_resource.h"

namespace tidepool {

class PagesResource final : public MemoryResource {
 public:
  // Of `options`: large_pages, prefault and owner.
  explicit PagesResource(const PagesOptions& options = {},
                         DeviceProvider& provider = HostProvider())
      : provider_(provider),
        options_(options),
        pages_(provider, options),
        budgeted_(pages_, options.owner, "pages"),
        reclaiming_(budgeted_) {}

  // As MemoryResource says; each block is a range of its own.
  Allocation Allocate(size_t bytes, size_t alignment) override {
    return reclaiming_.Allocate(bytes, alignment);
  }
  // Its pages go back at once.
  void Release(void* token, size_t bytes, size_t alignment) noexcept override {
    budgeted_.Release(token, bytes, alignment);
  }
  // Whose pages they are, and in words.
  Device device() const override { return pages_.device(); }
  std::string Describe() const override { return reclaiming_.Describe(); }
  // In whole pages.
  size_t FootprintBytes(size_t bytes, size_t alignment) const override {
    return pages_.FootprintBytes(bytes, alignment);
  }
  // Addresses of the provider's; null where it refuses.
  std::unique_ptr<Pages> ReservePages(size_t bytes) override {
    auto pages = std::make_unique<Pages>(options_, provider_);
    return pages->ReserveHole(bytes) ? std::move(pages) : nullptr;
  }

 private:
  DeviceProvider& provider_;
  const PagesOptions options_;
  PageBlocks pages_;
  BudgetedResource budgeted_;
  ReclaimingResource reclaiming_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_PAGES_RESOURCE_H_
