#include "tidepool/memory/workspace/plan_follower.h"

#include <algorithm>
#include <new>
#include <utility>

namespace tidepool {
namespace {

const PlanLayout& NoLayout() {
  static const auto* const none = new PlanLayout;  // followed at exit too
  return *none;
}

}  // namespace

PlanFollower::PlanFollower() : layout_(&NoLayout()) {
  Reserve(0);
  Follow(nullptr, 0);
}

void PlanFollower::Reserve(size_t requests) {
  state_.reserve(requests + 2);
  blocker_.reserve(requests);
  path_.reserve(requests);
}

void PlanFollower::Trim(size_t requests) noexcept {
  requests = std::max(requests, size());
  if (state_.capacity() <= 2 * requests + 64) return;
  try {
    PlanFollower smaller;
    smaller.Reserve(requests);
    std::swap(state_, smaller.state_);
    std::swap(blocker_, smaller.blocker_);
    std::swap(path_, smaller.path_);
  } catch (const std::bad_alloc&) {
    return;
  }
  Follow(layout_, 0);
}

void PlanFollower::Follow(const PlanLayout* layout, uint32_t count) noexcept {
  layout_ = layout != nullptr ? layout : &NoLayout();
  state_.assign(size() + 2, State::kGone);
  state_.back() = State::kBlocked;
  blocker_.assign(size(), kNobody);
  // Not kGone: they say nothing about who lies beneath them.
  std::fill(state_.begin(), state_.begin() + std::min<size_t>(count, size()), State::kBlocked);
}

size_t PlanFollower::state_bytes() const {
  return state_.capacity() * sizeof(State) + blocker_.capacity() * sizeof(uint32_t) +
         path_.capacity() * sizeof(Visit);
}

void PlanFollower::Miss(uint32_t slot) {
  state_[slot] = State::kBlocked;
  blocker_[slot] = kNobody;
  BlockerOf(slot);
}

// Depth first through unplaced tenants, with an explicit stack: a chain of misses may be as long
// as the cycle. Each slot found free becomes kGone, each slot above a blocker remembers it, so
// that slots shared by many paths are looked at once.
uint32_t PlanFollower::BlockerOf(uint32_t slot) {
  path_.clear();
  path_.push_back({slot, layout_->slot(slot).tenants_begin});
  while (!path_.empty()) {
    Visit& visit = path_.back();
    uint32_t blocker = blocker_[visit.slot];
    if (blocker == kNobody || state_[blocker] != State::kPlaced) {
      blocker = kNobody;
      if (visit.next_tenant == layout_->slot(visit.slot).tenants_end) {
        state_[visit.slot] = State::kGone;
        path_.pop_back();
        continue;
      }
      const uint32_t tenant = layout_->tenant(visit.next_tenant);
      if (state_[tenant] == State::kGone) {
        ++visit.next_tenant;
        continue;
      }
      if (state_[tenant] == State::kBlocked) {
        path_.push_back({tenant, layout_->slot(tenant).tenants_begin});
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
