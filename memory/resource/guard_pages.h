// Blocks on pages of their own, each in front of a page that may not be touched: a read or write
// past the end faults where it happens, and so does every access after the release, because the
// addresses stay reserved and empty until at least a range of others was handed out.
//
// A block ends as close to its guard as its alignment allows, with kGuardTailBytes readable bytes
// behind it (not kReadableTailBytes). What else lies on its pages is filled with a pattern; a
// release that finds it changed reports the write on stderr and ends the process. Blocks are filled
// with 0xff bytes: NaNs.
//
// For finding bugs, on the host: several system calls and at least two pages a block. Linux allows
// a process about 65,000 mappings (vm.max_map_count), two a live block. Threads: one at a time.
#ifndef TIDEPOOL_MEMORY_RESOURCE_GUARD_PAGES_H_
#define TIDEPOOL_MEMORY_RESOURCE_GUARD_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class GuardPages final : public MemoryResource {
 public:
  static constexpr size_t kGuardTailBytes = 16;

  // Address space is taken in ranges of at least `range_bytes`; it costs nothing.
  explicit GuardPages(size_t range_bytes = size_t{4} << 30) : range_bytes_(range_bytes) {}
  ~GuardPages() override;

  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  Device device() const override { return Host(); }
  std::string Describe() const override { return "guarded pages (see vm.max_map_count)"; }
  size_t FootprintBytes(size_t bytes, size_t alignment) const override;
  size_t owned_bytes() const override { return owned_bytes_; }  // pages of live blocks

  size_t range_count() const { return ranges_.size(); }

 private:
  struct Range {
    std::byte* base;
    size_t bytes;
    size_t used;
    size_t live_blocks;
  };
  static std::byte* FirstPage(std::byte* data);
  static std::byte* GuardOf(std::byte* data, size_t bytes);
  Range* RangeWith(size_t bytes, size_t alignment);

  size_t range_bytes_;
  std::vector<Range> ranges_;
  size_t current_ = 0;
  size_t owned_bytes_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_GUARD_PAGES_H_
