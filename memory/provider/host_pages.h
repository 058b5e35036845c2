// Pages of the host: the only code that asks the operating system for workspace memory.
//
// A HostPages object reserves a range of addresses once and commits pages at its front, so that a
// workspace can grow between cycles without moving. Committed pages are retained until Resize() or
// the destructor gives them back. Large ranges ask for huge pages (2 MiB): first touch of 4 KiB
// pages is an order of magnitude slower than warm memory.
//
// Errors: OutOfMemoryError when a budget or the system refuses; the object is unchanged then. Every request to
// the system is counted in MemoryTracker::Global(). Threads: one at a time.
#ifndef TIDEPOOL_MEMORY_PROVIDER_HOST_PAGES_H_
#define TIDEPOOL_MEMORY_PROVIDER_HOST_PAGES_H_

#include <cstddef>

#include "tidepool/memory/accounting/memory_budget.h"

namespace tidepool {

struct HostPagesOptions {
  bool huge_pages = true;   // advise 2 MiB pages for ranges of at least that size
  bool prefault = true;     // touch committed pages at once instead of at first use
  size_t reserve_bytes = 0; // address space; 0: a generous default, falling back to what is granted
  MemoryOwner* owner = nullptr;  // whose budget the pages are taken from; null: the process
};

// Bytes that are always readable behind the committed size: vector kernels read past the end.
inline constexpr size_t kReadableTailBytes = 64;

class HostPages {
 public:
  explicit HostPages(HostPagesOptions options = {})
      : options_(options), charge_(Host(), options.owner) {}
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  // Makes at least `bytes` usable (plus the readable tail). The base address stays the same unless
  // the reserved range is too small; contents of the kept part survive only while the base stays.
  // Shrinking returns whole pages to the system. 0 gives everything back.
  void Resize(size_t bytes);

  std::byte* base() const { return base_; }
  size_t committed_bytes() const { return committed_; }  // whole pages, readable tail included

 private:
  bool Reserve(size_t bytes);
  void ReleaseAll() noexcept;

  HostPagesOptions options_;
  std::byte* mapping_ = nullptr;  // what mmap returned
  std::byte* base_ = nullptr;     // the first huge-page boundary in it
  size_t reserved_ = 0;           // from base_
  size_t mapped_ = 0;             // from mapping_
  size_t committed_ = 0;
  BudgetCharge charge_;  // of committed_
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_HOST_PAGES_H_
