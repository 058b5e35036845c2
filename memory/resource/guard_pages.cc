#include "tidepool/memory/resource/guard_pages.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/host_provider.h"

namespace tidepool {
namespace {

constexpr std::byte kSlack{0xfd};
constexpr int kBlockFill = 0xff;
// Beyond it no range of addresses is found either.
constexpr size_t kMostAlignment = size_t{1} << 40;

size_t PageBytes() {
  static const size_t bytes = HostProvider().traits().granularity;
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
  for (const Range& range : ranges_) HostProvider().Unreserve(range.base, range.bytes);
}

std::byte* GuardPages::FirstPage(std::byte* data) { return RoundDown(data, PageBytes()); }

std::byte* GuardPages::GuardOf(std::byte* data, size_t bytes) {
  return RoundDown(data + bytes + kGuardTailBytes + PageBytes() - 1, PageBytes());
}

size_t GuardPages::FootprintBytes(size_t bytes, size_t alignment) const {
  if (bytes > kMostBytes || alignment > kMostAlignment) return SIZE_MAX;
  return RoundUp(bytes + kGuardTailBytes, PageBytes());
}

// A range whose blocks are all gone is used again when the current one is full. Null: refused.
GuardPages::Range* GuardPages::RangeWith(size_t bytes, size_t alignment) {
  auto fits = [&](const Range& range) {
    const size_t begin = RoundUp(reinterpret_cast<uintptr_t>(range.base) + range.used, alignment) -
                         reinterpret_cast<uintptr_t>(range.base);
    return begin + bytes <= range.bytes;
  };
  if (current_ < ranges_.size() && fits(ranges_[current_])) return &ranges_[current_];
  for (size_t i = 1; i < ranges_.size(); ++i) {
    const size_t index = (current_ + i) % ranges_.size();
    Range& range = ranges_[index];
    if (range.live_blocks > 0 || bytes + alignment > range.bytes) continue;
    range.used = 0;
    current_ = index;
    return &range;
  }
  ranges_.reserve(ranges_.size() + 1);
  const size_t wanted = std::max(range_bytes_, RoundUp(bytes + alignment, PageBytes()));
  std::byte* const base = HostProvider().Reserve(wanted);
  if (base == nullptr) return nullptr;
  ranges_.push_back({base, wanted, 0, 0});
  current_ = ranges_.size() - 1;
  return &ranges_.back();
}

Allocation GuardPages::Allocate(size_t bytes, size_t alignment) {
  const size_t data_pages = FootprintBytes(bytes, alignment);
  if (data_pages == SIZE_MAX || !std::has_single_bit(alignment)) {
    return Allocation::Refused(Refusal::kImpossible, this, bytes);
  }
  MemoryTracker& ledger =
      MemoryTracker::Global();  // may throw, at its first use: before anything is taken
  const size_t unit = std::max(alignment, PageBytes());
  Range* const range = RangeWith(data_pages + PageBytes(), unit);
  if (range == nullptr) return Allocation::Refused(Refusal::kExhausted, this, data_pages);
  std::byte* const first = reinterpret_cast<std::byte*>(
      RoundUp(reinterpret_cast<uintptr_t>(range->base) + range->used, unit));
  if (!HostProvider().Commit(first, data_pages, /*large_pages=*/false)) {
    return Allocation::Refused(Refusal::kExhausted, this, data_pages);
  }
  ledger.CountSystemAllocation();
  std::byte* const guard = first + data_pages;
  range->used = static_cast<size_t>(guard + PageBytes() - range->base);
  ++range->live_blocks;
  owned_bytes_ += data_pages;
  std::byte* const data = RoundDown(guard - kGuardTailBytes - bytes, alignment);
  std::fill(FirstPage(data), data, kSlack);
  std::memset(data, kBlockFill, bytes);
  std::fill(data + bytes, guard, kSlack);
  return {data, data};
}

void GuardPages::Release(void* token, size_t bytes, size_t) noexcept {
  auto* const data = static_cast<std::byte*>(token);
  std::byte* const first = FirstPage(data);
  std::byte* const guard = GuardOf(data, bytes);
  for (const std::byte* at = first; at != guard; ++at) {
    if (at == data) at += bytes;
    if (at == guard) break;
    if (*at != kSlack) ReportOverwritten(data, bytes, at);
  }
  const size_t data_pages = static_cast<size_t>(guard - first);
  // Refused (there are too many mappings): the pages stay, and stay owned, as long as their range.
  if (!HostProvider().Decommit(first, data_pages)) return;
  MemoryTracker::Global().CountSystemRelease();
  owned_bytes_ -= data_pages;
  for (Range& range : ranges_) {
    if (data >= range.base && data < range.base + range.bytes) --range.live_blocks;
  }
}

}  // namespace tidepool
