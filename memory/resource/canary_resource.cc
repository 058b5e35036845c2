#include "tidepool/memory/resource/canary_resource.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>

#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr std::byte kZone{0xfd};
constexpr std::byte kUnwritten{0xff};

}  // namespace

// In front a whole unit of the alignment, so that the block is as aligned as what it is cut from.
size_t CanaryResource::Enlarged(size_t bytes, size_t alignment) {
  return std::max(alignment, kZoneBytes) + bytes + kZoneBytes;
}

size_t CanaryResource::FootprintBytes(size_t bytes, size_t alignment) const {
  if (bytes > kMostBytes || alignment > kMostBytes) return SIZE_MAX;
  return upstream().FootprintBytes(Enlarged(bytes, alignment), alignment);
}

Allocation CanaryResource::Allocate(size_t bytes, size_t alignment) {
  if (bytes > kMostBytes || alignment > kMostBytes || !std::has_single_bit(alignment)) {
    return Allocation::Refused(Refusal::kImpossible, this, bytes);
  }
  Allocation block = upstream().Allocate(Enlarged(bytes, alignment), alignment);
  if (!block) return block;
  try {
    block.data += std::max(alignment, kZoneBytes);
    provider_.Fill(block.data - kZoneBytes, kZone, kZoneBytes);
    provider_.Fill(block.data, kUnwritten, bytes);
    provider_.Fill(block.data + bytes, kZone, kZoneBytes);
    std::lock_guard<std::mutex> lock(mutex_);
    data_of_.emplace(block.token, block.data);
  } catch (...) {
    upstream().Release(block.token, Enlarged(bytes, alignment), alignment);
    throw;
  }
  return block;
}

// A device that fails is told by whoever uses it next; here its bytes go unseen.
void CanaryResource::Check(const std::byte* data, size_t bytes, ptrdiff_t offset) noexcept {
  std::byte zone[kZoneBytes];
  try {
    provider_.CopyToHost(zone, data + offset, kZoneBytes);
  } catch (const Error&) {
    return;
  }
  for (size_t i = 0; i < kZoneBytes; ++i) {
    if (zone[i] == kZone) continue;
    std::fprintf(
        stderr,
        "tidepool: canary: a write at offset %td of a block of %zu bytes at %p, outside of "
        "the block\n",
        offset + static_cast<ptrdiff_t>(i), bytes, static_cast<const void*>(data));
    std::abort();
  }
}

void CanaryResource::Release(void* token, size_t bytes, size_t alignment) noexcept {
  std::byte* data;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = data_of_.find(token);
    data = found->second;
    data_of_.erase(found);
  }
  Check(data, bytes, -static_cast<ptrdiff_t>(kZoneBytes));
  Check(data, bytes, static_cast<ptrdiff_t>(bytes));
  upstream().Release(token, Enlarged(bytes, alignment), alignment);
}

}  // namespace tidepool
