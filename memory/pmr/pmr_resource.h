// PmrResource: any MemoryResource of the host as the standard library's std::pmr::memory_resource.
//
//   PagesResource pages;
//   Pool pool(pages, size_t{1} << 20, 64);
//   PmrResource resource(pool);
//   std::pmr::vector<int> numbers(&resource);
//
// A header of 16 bytes in front of each block names it to its resource, which is asked for an
// alignment of 16 alone; alignments beyond that need as many bytes as they are. Two are equal when they wrap the same resource.
//
// Ownership: `upstream` must outlive it. Errors: OutOfMemoryBadAlloc (bad_alloc.h); what else the
// resource throws goes through. Threads: as what it wraps.
#ifndef TIDEPOOL_MEMORY_PMR_PMR_RESOURCE_H_
#define TIDEPOOL_MEMORY_PMR_PMR_RESOURCE_H_

#include <cstddef>
#include <memory_resource>

#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class PmrResource final : public std::pmr::memory_resource {
 public:
  // Throws kInvalidArgument for a resource of another device.
  explicit PmrResource(MemoryResource& upstream);

  // What it wraps.
  MemoryResource& upstream() const { return upstream_; }

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* block, size_t bytes, size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;

  MemoryResource& upstream_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PMR_PMR_RESOURCE_H_
