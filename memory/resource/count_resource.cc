#include "tidepool/memory/resource/count_resource.h"

namespace tidepool {

Allocation CountResource::Allocate(size_t bytes, size_t alignment) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Allocation block;
  try {
    block = upstream().Allocate(bytes, alignment);
  } catch (...) {
    refused_blocks_.fetch_add(1, kRelaxed);
    throw;
  }
  if (!block) {
    refused_blocks_.fetch_add(1, kRelaxed);
    return block;
  }
  const auto counted = static_cast<int64_t>(bytes);
  granted_blocks_.fetch_add(1, kRelaxed);
  granted_bytes_.fetch_add(counted, kRelaxed);
  live_blocks_.fetch_add(1, kRelaxed);
  const int64_t live = live_bytes_.fetch_add(counted, kRelaxed) + counted;
  int64_t peak = peak_live_bytes_.load(kRelaxed);
  while (live > peak && !peak_live_bytes_.compare_exchange_weak(peak, live, kRelaxed)) {
  }
  return block;
}

// Counted before the block goes, so that whoever gets it next is not counted on top of it.
void CountResource::Release(void* token, size_t bytes, size_t alignment) noexcept {
  live_blocks_.fetch_sub(1, std::memory_order_relaxed);
  live_bytes_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  upstream().Release(token, bytes, alignment);
}

CountResource::Counts CountResource::counts() const {
  const auto of = [](const std::atomic<int64_t>& n) { return n.load(std::memory_order_relaxed); };
  return {of(live_blocks_),    of(live_bytes_),    of(peak_live_bytes_),
          of(granted_blocks_), of(granted_bytes_), of(refused_blocks_)};
}

}  // namespace tidepool
