#include "tidepool/memory/workspace/workspace_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace tidepool {

WorkspacePlan::WorkspacePlan(absl::Span<const LifetimeBuffer> requests,
                             absl::Span<const int64_t> offsets, size_t limit)
    : state_(requests.size() + 2, State::kGone), blocker_(requests.size(), kNobody) {
  slots_.reserve(requests.size());
  reached_.reserve(requests.size() + 1);
  path_.reserve(requests.size());
  // Requests are painted over the address range in order; what a request paints over are its
  // tenants. Key: where a painted piece begins; it reaches to the next key.
  std::map<size_t, uint32_t> painted{{0, kNobody}};
  std::vector<uint32_t> tenant_of(requests.size(), kNobody);  // whose it was last noted to be
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
    uint32_t sole_tenant = static_cast<uint32_t>(requests.size());
    if (tenants_end - tenants_begin == 1) sole_tenant = tenants_[tenants_begin];
    if (tenants_end - tenants_begin > 1 || bytes == 0) sole_tenant = requests.size() + 1;
    slots_.push_back({bytes, begin, tenants_begin, tenants_end, sole_tenant});
    const Reached& before = reached_.back();
    reached_.push_back({before.bytes + bytes, std::max(before.top, bytes > 0 ? end : 0)});
  }
  state_.back() = State::kBlocked;
}

void WorkspacePlan::TakeOver(uint32_t count) {
  std::fill(state_.begin(), state_.begin() + slots_.size(), State::kGone);
  // Not kGone: they say nothing about who lies beneath them.
  std::fill(state_.begin(), state_.begin() + count, State::kBlocked);
  std::fill(blocker_.begin(), blocker_.begin() + count, kNobody);
}

size_t WorkspacePlan::top_of(uint32_t begin, uint32_t end) const {
  if (begin == 0) return reached_[end].top;
  size_t top = 0;
  for (uint32_t slot = begin; slot < end; ++slot) {
    top = std::max(top, slots_[slot].offset + slots_[slot].bytes);
  }
  return top;
}

size_t WorkspacePlan::state_bytes() const {
  return slots_.capacity() * sizeof(Slot) + reached_.capacity() * sizeof(Reached) + tenants_.capacity() * sizeof(uint32_t) +
         state_.capacity() * sizeof(State) + blocker_.capacity() * sizeof(uint32_t) +
         path_.capacity() * sizeof(Visit);
}

void WorkspacePlan::Miss(uint32_t slot) {
  state_[slot] = State::kBlocked;
  blocker_[slot] = kNobody;
  BlockerOf(slot);
}

// Depth first through unplaced tenants, with an explicit stack: a chain of misses may be as long
// as the cycle. Each slot found free becomes kGone, each slot above a blocker remembers it, so
// that slots shared by many paths are looked at once.
uint32_t WorkspacePlan::BlockerOf(uint32_t slot) {
  path_.clear();
  path_.push_back({slot, slots_[slot].tenants_begin});
  while (!path_.empty()) {
    Visit& visit = path_.back();
    uint32_t blocker = blocker_[visit.slot];
    if (blocker == kNobody || state_[blocker] != State::kPlaced) {
      blocker = kNobody;
      if (visit.next_tenant == slots_[visit.slot].tenants_end) {
        state_[visit.slot] = State::kGone;
        path_.pop_back();
        continue;
      }
      const uint32_t tenant = tenants_[visit.next_tenant];
      if (state_[tenant] == State::kGone) {
        ++visit.next_tenant;
        continue;
      }
      if (state_[tenant] == State::kBlocked) {
        path_.push_back({tenant, slots_[tenant].tenants_begin});
        continue;
      }
      blocker = tenant;
    }
    for (const Visit& above : path_) blocker_[above.slot] = blocker;
    return blocker;
  }
  return kNobody;
}

}  // namespace tidepool
