#include "tidepool/memory/resource/page_blocks.h"

#include <algorithm>
#include <bit>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/provider_calls.h"

namespace tidepool {

size_t PageBlocks::FootprintBytes(size_t bytes, size_t alignment) const {
  if (bytes > kMostBytes || alignment > kMaxAlignment) return SIZE_MAX;
  const size_t unit = provider_.traits().granularity;
  return (bytes + kReadableTailBytes + unit - 1) / unit * unit;
}

size_t PageBlocks::ReservedBytes(size_t footprint) const {
  const MemoryTraits traits = provider_.traits();
  const size_t unit = std::max(traits.granularity, traits.large_granularity);
  return (footprint + unit - 1) / unit * unit;
}

Allocation PageBlocks::Allocate(size_t bytes, size_t alignment) {
  const size_t footprint = FootprintBytes(bytes, alignment);
  if (footprint == SIZE_MAX || !std::has_single_bit(alignment)) {
    return Allocation::Refused(Refusal::kImpossible, this, bytes);
  }
  MemoryTracker& ledger =
      MemoryTracker::Global();  // may throw, at its first use: before anything is taken
  const size_t reserved = ReservedBytes(footprint);
  std::byte* const base = ReserveAligned(provider_, reserved);
  if (base == nullptr) {
    provider_.ThrowIfLost("pages");
    return Allocation::Refused(Refusal::kExhausted, this, footprint);
  }
  const size_t large = provider_.traits().large_granularity;
  if (!provider_.Commit(base, footprint, options_.large_pages && large > 0 && footprint >= large)) {
    provider_.Unreserve(base, reserved);
    provider_.ThrowIfLost("pages");
    return Allocation::Refused(Refusal::kExhausted, this, footprint);
  }
  ledger.CountSystemAllocation();
  if (options_.prefault) provider_.Prefault(base, footprint);
  return {base, base};
}

void PageBlocks::Release(void* token, size_t bytes, size_t alignment) noexcept {
  provider_.Unreserve(static_cast<std::byte*>(token),
                      ReservedBytes(FootprintBytes(bytes, alignment)));
  MemoryTracker::Global().CountSystemRelease();
}

std::string PageBlocks::Describe() const { return "pages of " + ProviderName(provider_); }

}  // namespace tidepool
