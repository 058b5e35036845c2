#include "tidepool/memory/resource/limit_resource.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tidepool {

Allocation LimitResource::Allocate(size_t bytes, size_t alignment) {
  const size_t wanted = FootprintBytes(bytes, alignment);
  size_t taken = taken_.load(std::memory_order_relaxed);
  do {
    if (wanted > limit_bytes_) return Allocation::Refused(Refusal::kImpossible, this, bytes);
    if (wanted > limit_bytes_ - taken) {
      return Allocation::Refused(Refusal::kOverLimit, this, wanted - (limit_bytes_ - taken));
    }
  } while (!taken_.compare_exchange_weak(taken, taken + wanted, std::memory_order_relaxed));
  try {
    const Allocation block = upstream().Allocate(bytes, alignment);
    if (!block) taken_.fetch_sub(wanted, std::memory_order_relaxed);
    return block;
  } catch (...) {
    taken_.fetch_sub(wanted, std::memory_order_relaxed);
    throw;
  }
}

void LimitResource::Release(void* token, size_t bytes, size_t alignment) noexcept {
  upstream().Release(token, bytes, alignment);
  taken_.fetch_sub(FootprintBytes(bytes, alignment), std::memory_order_relaxed);
}

std::string LimitResource::Describe() const {
  return absl::StrCat("at most ", limit_bytes_, " bytes (", taken_bytes(), " are taken) of ",
                      upstream().Describe());
}

}  // namespace tidepool
