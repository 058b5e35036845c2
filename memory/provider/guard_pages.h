// Blocks on pages of their own, each in front of a page that may not be touched: a read or write
// past the end faults where it happens, and so does every access after the release, because the
// addresses stay reserved and empty until at least a range of others was handed out.
//
// A block ends as close to its guard as its alignment allows, with kGuardTailBytes readable bytes
// behind it. What else lies on its pages is filled with a pattern; a release that finds it changed
// reports the write on stderr and ends the process. Blocks are filled with 0xff bytes: NaNs.
//
// For finding bugs: several system calls and at least two pages a block. Linux allows a process
// about 65,000 mappings (vm.max_map_count), two a live block. Threads: one at a time.
#ifndef TIDEPOOL_MEMORY_PROVIDER_GUARD_PAGES_H_
#define TIDEPOOL_MEMORY_PROVIDER_GUARD_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"

namespace tidepool {

class GuardPages {
 public:
  static constexpr size_t kGuardTailBytes = 16;

  // Address space is taken in ranges of at least `range_bytes`; it costs nothing.
  // `owner`: whose budget the pages are taken from; null: the process.
  explicit GuardPages(size_t range_bytes = size_t{4} << 30, MemoryOwner* owner = nullptr)
      : range_bytes_(range_bytes), charge_(Host(), owner) {}
  ~GuardPages();
  GuardPages(const GuardPages&) = delete;
  GuardPages& operator=(const GuardPages&) = delete;

  // `alignment`: a power of two. Throws OutOfMemoryError; nothing is changed then.
  std::byte* Allocate(size_t bytes, size_t alignment);
  // `bytes` as given to Allocate.
  void Release(std::byte* data, size_t bytes) noexcept;

  size_t owned_bytes() const { return owned_bytes_; }  // pages of live blocks
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
  Range& RangeWith(size_t bytes, size_t alignment);

  size_t range_bytes_;
  std::vector<Range> ranges_;
  size_t current_ = 0;
  size_t owned_bytes_ = 0;
  BudgetCharge charge_;  // of owned_bytes_
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_GUARD_PAGES_H_
