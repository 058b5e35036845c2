#include "tidepool/memory/provider/guard_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr std::byte kSlack{0xfd};
constexpr int kBlockFill = 0xff;

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) & ~(unit - 1); }
std::byte* RoundDown(std::byte* address, size_t unit) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(address) & ~(unit - 1));
}

[[noreturn]] void ReportOverwritten(const std::byte* data, size_t bytes, const std::byte* at) {
  std::fprintf(stderr,
               "tidepool: guard: a write at offset %td of a block of %zu bytes at %p, outside of "
               "the block\n",
               at - data, bytes, static_cast<const void*>(data));
  std::abort();
}

}  // namespace

GuardPages::~GuardPages() {
  for (const Range& range : ranges_) munmap(range.base, range.bytes);
}

std::byte* GuardPages::FirstPage(std::byte* data) { return RoundDown(data, PageBytes()); }

std::byte* GuardPages::GuardOf(std::byte* data, size_t bytes) {
  return RoundDown(data + bytes + kGuardTailBytes + PageBytes() - 1, PageBytes());
}

// A range whose blocks are all gone is used again when the current one is full.
GuardPages::Range& GuardPages::RangeWith(size_t bytes, size_t alignment) {
  auto fits = [&](const Range& range) {
    const size_t begin = RoundUp(reinterpret_cast<uintptr_t>(range.base) + range.used, alignment) -
                         reinterpret_cast<uintptr_t>(range.base);
    return begin + bytes <= range.bytes;
  };
  if (current_ < ranges_.size() && fits(ranges_[current_])) return ranges_[current_];
  for (size_t i = 1; i < ranges_.size(); ++i) {
    const size_t index = (current_ + i) % ranges_.size();
    Range& range = ranges_[index];
    if (range.live_blocks > 0 || bytes + alignment > range.bytes) continue;
    range.used = 0;
    current_ = index;
    return range;
  }
  ranges_.reserve(ranges_.size() + 1);
  const size_t wanted = std::max(range_bytes_, RoundUp(bytes + alignment, PageBytes()));
  void* address =
      mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw OutOfMemoryError(
        absl::StrCat("GuardPages: the system refused an address range of ", wanted, " bytes"),
        MemoryTracker::Global().Snapshot().ToString());
  }
  ranges_.push_back({static_cast<std::byte*>(address), wanted, 0, 0});
  current_ = ranges_.size() - 1;
  return ranges_.back();
}

std::byte* GuardPages::Allocate(size_t bytes, size_t alignment) {
  if (bytes > SIZE_MAX / 4) {
    throw OutOfMemoryError(absl::StrCat("GuardPages: a block of ", bytes, " bytes cannot exist"),
                           MemoryTracker::Global().Snapshot().ToString());
  }
  const size_t unit = std::max(alignment, PageBytes());
  const size_t data_pages = RoundUp(bytes + kGuardTailBytes, PageBytes());
  Range& range = RangeWith(data_pages + PageBytes(), unit);
  std::byte* const first = reinterpret_cast<std::byte*>(
      RoundUp(reinterpret_cast<uintptr_t>(range.base) + range.used, unit));
  charge_.GrowTo(static_cast<int64_t>(owned_bytes_ + data_pages), "guarded pages");
  if (mprotect(first, data_pages, PROT_READ | PROT_WRITE) != 0) {
    charge_.ShrinkTo(static_cast<int64_t>(owned_bytes_));
    throw OutOfMemoryError(absl::StrCat("GuardPages: the system refused ", data_pages,
                                        " bytes more (see vm.max_map_count)"),
                           MemoryTracker::Global().Snapshot().ToString());
  }
  MemoryTracker::Global().CountSystemAllocation();
  std::byte* const guard = first + data_pages;
  range.used = static_cast<size_t>(guard + PageBytes() - range.base);
  ++range.live_blocks;
  owned_bytes_ += data_pages;
  std::byte* const data = RoundDown(guard - kGuardTailBytes - bytes, alignment);
  std::fill(FirstPage(data), data, kSlack);
  std::memset(data, kBlockFill, bytes);
  std::fill(data + bytes, guard, kSlack);
  return data;
}

void GuardPages::Release(std::byte* data, size_t bytes) noexcept {
  std::byte* const first = FirstPage(data);
  std::byte* const guard = GuardOf(data, bytes);
  for (const std::byte* at = first; at != guard; ++at) {
    if (at == data) at += bytes;
    if (at == guard) break;
    if (*at != kSlack) ReportOverwritten(data, bytes, at);
  }
  const size_t data_pages = static_cast<size_t>(guard - first);
  // Fresh, empty pages in place of the old ones; without room for that, the old ones locked away.
  if (mmap(first, data_pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0) == MAP_FAILED) {
    mprotect(first, data_pages, PROT_NONE);
  }
  MemoryTracker::Global().CountSystemRelease();
  owned_bytes_ -= data_pages;
  charge_.ShrinkTo(static_cast<int64_t>(owned_bytes_));
  for (Range& range : ranges_) {
    if (data >= range.base && data < range.base + range.bytes) --range.live_blocks;
  }
}

}  // namespace tidepool
