#include "tidepool/memory/workspace/workspace_plan.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace tidepool {

WorkspacePlan::WorkspacePlan(absl::Span<const LifetimeBuffer> requests,
                             absl::Span<const int64_t> offsets)
    : state_(requests.size(), State::kGone) {
  slots_.reserve(requests.size());
  // Requests are painted over the address range in order; what a request paints over are its
  // tenants. Key: where a painted piece begins; it reaches to the next key.
  constexpr uint32_t kNobody = UINT32_MAX;
  std::map<size_t, uint32_t> painted{{0, kNobody}};
  for (uint32_t i = 0; i < requests.size(); ++i) {
    const size_t bytes = static_cast<size_t>(requests[i].size);
    const size_t begin = static_cast<size_t>(offsets[i]);
    const size_t end = begin + bytes;
    peak_ = std::max(peak_, end);
    const uint32_t tenants_begin = static_cast<uint32_t>(tenants_.size());
    if (bytes > 0) {
      auto split = [&](size_t at) {
        auto after = painted.upper_bound(at);
        return painted.emplace(at, std::prev(after)->second).first;
      };
      const auto last = split(end);
      const auto first = split(begin);
      for (auto piece = first; piece != last; ++piece) {
        const uint32_t tenant = piece->second;
        if (tenant == kNobody) continue;
        if (std::find(tenants_.begin() + tenants_begin, tenants_.end(), tenant) == tenants_.end()) {
          tenants_.push_back(tenant);
        }
      }
      painted.erase(std::next(first), last);
      first->second = i;
    }
    slots_.push_back({bytes, begin, tenants_begin, static_cast<uint32_t>(tenants_.size())});
  }
}

}  // namespace tidepool
