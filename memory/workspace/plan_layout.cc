#include "tidepool/memory/workspace/plan_layout.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "tidepool/memory/mapped_vector.h"

namespace tidepool {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

}  // namespace

PlanLayout::PlanLayout(absl::Span<const LifetimeBuffer> requests, absl::Span<const int64_t> offsets,
                       size_t limit) {
  slots_.reserve(requests.size());
  // Requests are painted over the address range in order; what a request paints over are its
  // tenants. Key: where a painted piece begins; it reaches to the next key.
  std::map<size_t, uint32_t> painted{{0, kNobody}};
  MappedVector<uint32_t> tenant_of(requests.size(), kNobody);  // whose it was last noted to be
  for (uint32_t i = 0; i < requests.size(); ++i) {
    size_t bytes = static_cast<size_t>(requests[i].size);
    const size_t begin = static_cast<size_t>(offsets[i]);
    const size_t end = begin + bytes;
    const uint32_t tenants_begin = static_cast<uint32_t>(tenants_.size());
    if (end > limit) bytes = 0;
    if (bytes > 0) {
      peak_ = std::max(peak_, end);
      auto split = [&](size_t at) {
        auto after = painted.upper_bound(at);
        return painted.emplace(at, std::prev(after)->second).first;
      };
      const auto last = split(end);
      const auto first = split(begin);
      for (auto piece = first; piece != last; ++piece) {
        const uint32_t tenant = piece->second;
        if (tenant == kNobody) continue;
        if (std::exchange(tenant_of[tenant], i) != i) tenants_.push_back(tenant);
      }
      painted.erase(std::next(first), last);
      first->second = i;
    }
    const uint32_t tenants_end = static_cast<uint32_t>(tenants_.size());
    const uint32_t tenants = tenants_end - tenants_begin;
    const auto gone = static_cast<uint32_t>(requests.size());
    uint32_t first_tenant = tenants > 0 ? tenants_[tenants_begin] : gone;
    const uint32_t second_tenant = tenants == 2 ? tenants_[tenants_begin + 1] : gone;
    if (tenants > 2 || bytes == 0) first_tenant = gone + 1;
    slots_.push_back({bytes, begin, tenants_begin, tenants_end, first_tenant, second_tenant});
    bytes_ += bytes;
  }
  tenants_.shrink_to_fit();
}

size_t PlanLayout::bytes_of(uint32_t begin, uint32_t end) const {
  if (begin == 0 && end == slots_.size()) return bytes_;
  size_t bytes = 0;
  for (uint32_t slot = begin; slot < end; ++slot) bytes += slots_[slot].bytes;
  return bytes;
}

size_t PlanLayout::top_of(uint32_t begin, uint32_t end) const {
  if (begin == 0 && end == slots_.size()) return peak_;
  size_t top = 0;
  for (uint32_t slot = begin; slot < end; ++slot) {
    if (slots_[slot].bytes > 0) top = std::max(top, slots_[slot].offset + slots_[slot].bytes);
  }
  return top;
}

size_t PlanLayout::state_bytes() const {
  return slots_.capacity() * sizeof(Slot) + tenants_.capacity() * sizeof(uint32_t);
}

}  // namespace tidepool
