// Blocks that are ranges of whole pages of a device, each with addresses of its own. For large
// blocks that others cut up or keep.
//
// A block may be used up to FootprintBytes() less kReadableTailBytes. Alignment: up to
// kMaxAlignment. Threads: any. Cost: system or driver calls, and page faults at first use unless
// prefaulted.
#ifndef TIDEPOOL_MEMORY_RESOURCE_PAGE_BLOCKS_H_
#define TIDEPOOL_MEMORY_RESOURCE_PAGE_BLOCKS_H_

#include <cstddef>
#include <string>

#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class PageBlocks final : public MemoryResource {
 public:
  // Of `options`: large_pages and prefault.
  explicit PageBlocks(DeviceProvider& provider, const PagesOptions& options = {})
      : provider_(provider), options_(options) {}

  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  Device device() const override { return provider_.device(); }
  std::string Describe() const override;
  size_t FootprintBytes(size_t bytes, size_t alignment) const override;

 private:
  size_t ReservedBytes(size_t footprint) const;

  DeviceProvider& provider_;
  const PagesOptions options_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_PAGE_BLOCKS_H_
