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
  // `requests` in order of their numbers, `offsets` one per request. Requests that would end
  // beyond `limit` are planned outside of the pages.
  WorkspacePlan(absl::Span<const LifetimeBuffer> requests, absl::Span<const int64_t> offsets,
                size_t limit = SIZE_MAX);

  bool empty() const { return slots_.empty(); }
  size_t size() const { return slots_.size(); }
  size_t peak_bytes() const { return peak_; }

  // True when request number `slot` is of `bytes` bytes as learned and no earlier request of this
  // cycle is alive in its range; then it is placed. A handful of compares.
  bool TryPlace(uint32_t slot, size_t bytes, size_t* offset) {
    if (slot >= slots_.size()) return false;
    const Slot& planned = slots_[slot];
    if (planned.bytes != bytes || !AllGone(planned)) {
      Miss(slot);
      return false;
    }
    state_[slot] = State::kPlaced;
    *offset = planned.offset;
    return true;
  }
  // As TryPlace, but a request smaller than learned is placed too.
  bool TryPlaceWithin(uint32_t slot, size_t bytes, size_t* offset) {
    if (slot >= slots_.size() || bytes > slots_[slot].bytes) return false;
    return TryPlace(slot, slots_[slot].bytes, offset);
  }
  // The buffer of request `slot` was released.
  void Release(uint32_t slot) {
    if (slot < slots_.size() && state_[slot] == State::kPlaced) state_[slot] = State::kGone;
  }
  // The plan itself sends request `slot` outside of the pages.
  bool IsOutside(uint32_t slot) const { return slot < slots_.size() && slots_[slot].bytes == 0; }
  // Where request `slot` is planned to go.
  size_t offset(uint32_t slot) const { return slots_[slot].offset; }
  // Bytes of the requests [begin, end) together, and the highest address they reach: what a cycle
  // that followed the plan need not have counted.
  size_t bytes_of(uint32_t begin, uint32_t end) const {
    return reached_[end].bytes - reached_[begin].bytes;
  }
  size_t top_of(uint32_t begin, uint32_t end) const;

  struct Slot {
    size_t bytes;  // 0: outside
    size_t offset;
    uint32_t tenants_begin;
    uint32_t tenants_end;
    // Of requests with at most one tenant; size(), who always is gone, if there is none, and
    // size() + 1, who never is, if there are several and for requests outside.
    uint32_t sole_tenant;
  };
  // kBlocked: a request that was not placed while an earlier tenant of its range was alive; that
  // tenant still is in the way of everyone who comes after.
  enum class State : uint8_t { kGone, kPlaced, kBlocked };

  // The plan as its user's hot path sees it; valid as long as the plan.
  class Quick {
   public:
    Quick() = default;
    explicit Quick(WorkspacePlan& plan) : slots_(plan.slots_.data()), state_(plan.state_.data()) {}
    // As TryPlace for `bytes` before they are rounded up to `alignment`, in the usual case of at
    // most one tenant; null also where TryPlace must look closer. `slot` must be less than size().
    const Slot* TryPlace(uint32_t slot, size_t bytes, size_t alignment) const {
      const Slot& planned = slots_[slot];
      // 0 bytes take as many as `alignment` and so are not found here.
      if (planned.bytes - bytes >= alignment || state_[planned.sole_tenant] != State::kGone) {
        return nullptr;
      }
      state_[slot] = State::kPlaced;
      return &planned;
    }
    // The buffer of request `slot`, which was placed, was released.
    void Release(uint32_t slot) const { state_[slot] = State::kGone; }

   private:
    const Slot* slots_ = nullptr;
    State* state_ = nullptr;
  };

  // Takes over a cycle that has made `count` requests: none of them lies where this plan has it
  // but those that Assume() names.
  void TakeOver(uint32_t count);
  // Request `slot` is alive where this plan has it.
  void Assume(uint32_t slot) { state_[slot] = State::kPlaced; }
  // Heap memory of the plan.
  size_t state_bytes() const;

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;

  // A tenant once gone stays gone in its cycle, so the first tenants alone tell.
  bool AllGone(const Slot& slot) {
    for (uint32_t i = slot.tenants_begin; i < slot.tenants_end; ++i) {
      const State state = state_[tenants_[i]];
      if (state == State::kGone) continue;
      if (state == State::kPlaced || BlockerOf(tenants_[i]) != kNobody) return false;
    }
    return true;
  }
  void Miss(uint32_t slot);
  // A request that is alive in the range of `slot` or of an unplaced tenant of it.
  uint32_t BlockerOf(uint32_t slot);

  std::vector<Slot> slots_;
  struct Reached {
    size_t bytes;
    size_t top;
  };
  std::vector<Reached> reached_{{0, 0}};  // by number of requests made
  std::vector<uint32_t> tenants_;  // per slot: the last earlier requests in its range
  std::vector<State> state_;  // and two more: one always kGone, one never
  std::vector<uint32_t> blocker_;  // of a kBlocked slot: who was found alive in its range
  struct Visit {
    uint32_t slot;
    uint32_t next_tenant;
  };
  std::vector<Visit> path_;  // scratch of BlockerOf, large enough for any path
  size_t peak_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_PLAN_H_
