// Where each request of a cycle goes, and what must be gone before it may go there.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_PLAN_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

class WorkspacePlan {
 public:
  WorkspacePlan() = default;
  // `requests` in order of their numbers, `offsets` one per request.
  WorkspacePlan(absl::Span<const LifetimeBuffer> requests, absl::Span<const int64_t> offsets);

  bool empty() const { return slots_.empty(); }
  size_t size() const { return slots_.size(); }
  size_t peak_bytes() const { return peak_; }

  // True when request number `slot` is of `bytes` bytes as learned and every earlier tenant of its
  // range is gone in this cycle; then it is placed. A handful of compares.
  bool TryPlace(uint32_t slot, size_t bytes, size_t* offset) {
    if (slot >= slots_.size()) return false;
    const Slot& planned = slots_[slot];
    if (planned.bytes != bytes || !TenantsGone(planned)) {
      state_[slot] = State::kMissed;
      return false;
    }
    state_[slot] = State::kPlaced;
    *offset = planned.offset;
    return true;
  }
  // The buffer of request `slot` was released.
  void Release(uint32_t slot) {
    if (slot < slots_.size() && state_[slot] == State::kPlaced) state_[slot] = State::kGone;
  }

 private:
  struct Slot {
    size_t bytes;
    size_t offset;
    uint32_t tenants_begin;
    uint32_t tenants_end;
  };
  // A missed request does not occupy its range, but those it would have replaced still may.
  enum class State : uint8_t { kGone, kPlaced, kMissed };

  bool TenantsGone(const Slot& slot) const {
    for (uint32_t i = slot.tenants_begin; i < slot.tenants_end; ++i) {
      const State state = state_[tenants_[i]];
      if (state == State::kPlaced) return false;
      if (state == State::kMissed && !TenantsGone(slots_[tenants_[i]])) return false;
    }
    return true;
  }

  std::vector<Slot> slots_;
  std::vector<uint32_t> tenants_;  // per slot: the last earlier requests in its range
  std::vector<State> state_;
  size_t peak_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_PLAN_H_
