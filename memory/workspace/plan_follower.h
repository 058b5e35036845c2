// How far a cycle follows a layout: which requests lie where the plan has them, which are gone, and
// which could not be placed.
//
// A plan is never trusted. Each request is compared with what was learned, and the earlier tenants of
// its range must be gone; a request that was not placed is looked through at the tenants behind it, so
// that a miss can never hide a live array.
//
// Threads: one at a time. Cost: a planned request a handful of compares.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_FOLLOWER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_FOLLOWER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidepool/memory/workspace/plan_layout.h"

namespace tidepool {

class PlanFollower {
 public:
  // Follows nothing: no request is placed. Throws std::bad_alloc.
  PlanFollower();

  // Memory to follow layouts of up to `requests` requests. Throws std::bad_alloc, nothing changed.
  void Reserve(size_t requests);
  // Between cycles: memory for no more than that, as far as what is followed needs no more.
  void Trim(size_t requests) noexcept;
  // From here on the cycle, which has made `count` requests, follows `layout` (null: nothing), which
  // must have been reserved for and live until the next call. None of those requests lies where it
  // has them but those that Assume() names. O(requests of the layout). A layout that a cycle has left
  // with all its requests released need not be followed anew for the next cycle.
  void Follow(const PlanLayout* layout, uint32_t count) noexcept;
  // Request `slot` is alive where the layout has it.
  void Assume(uint32_t slot) { state_[slot] = State::kPlaced; }
  // Request `slot` is not, and nothing but what is told lies below the layout's end: where no earlier tenant of its range is
  // alive either it is in nobody's way. Each in ascending order, after Follow() with Assume() of others between.
  void AssumeGone(uint32_t slot) {
    const PlanLayout::Slot& planned = layout_->slot(slot);
    for (uint32_t i = planned.tenants_begin; i < planned.tenants_end; ++i) {
      if (state_[layout_->tenant(i)] != State::kGone) return;
    }
    state_[slot] = State::kGone;
  }

  // What is followed; an empty one for nothing.
  const PlanLayout& layout() const { return *layout_; }
  size_t size() const { return layout_->size(); }

  // True when request number `slot` is of `bytes` bytes (not 0) as learned and no earlier request of
  // this cycle is alive in its range; then it is placed.
  bool TryPlace(uint32_t slot, size_t bytes, size_t* offset) {
    if (slot >= size()) return false;
    const PlanLayout::Slot& planned = layout_->slot(slot);
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
    if (slot >= size() || bytes > layout_->slot(slot).bytes) return false;
    return TryPlace(slot, layout_->slot(slot).bytes, offset);
  }
  // The buffer of request `slot` was released.
  void Release(uint32_t slot) {
    if (slot < size() && state_[slot] == State::kPlaced) state_[slot] = State::kGone;
  }

  // kBlocked: a request that was not placed while an earlier tenant of its range was alive; that
  // tenant still is in the way of everyone who comes after.
  enum class State : uint8_t { kGone, kPlaced, kBlocked };

  // The follower as a hot path sees it; valid until the next Follow().
  class Quick {
   public:
    Quick() = default;
    explicit Quick(PlanFollower& follower)
        : slots_(follower.layout_->slots()),
          tenants_(follower.layout_->tenants()),
          state_(follower.state_.data()) {}
    // As TryPlace for `bytes` before they are rounded up to `alignment`, where there are at most two tenants, which are
    // known to be gone; null also where TryPlaceAmongMany or TryPlace must look closer. `slot` must be less than size().
    const PlanLayout::Slot* TryPlace(uint32_t slot, size_t bytes, size_t alignment) const {
      const PlanLayout::Slot& planned = slots_[slot];
      // 0 bytes take as many as `alignment` and so are not found here.
      if (planned.bytes - bytes >= alignment) return nullptr;
      const auto first = static_cast<uint8_t>(state_[planned.first_tenant]);
      if ((first | static_cast<uint8_t>(state_[planned.second_tenant])) != kGoneByte)
        return nullptr;
      state_[slot] = State::kPlaced;
      return &planned;
    }
    // The same of any number of tenants.
    const PlanLayout::Slot* TryPlaceAmongMany(uint32_t slot, size_t bytes, size_t alignment) const {
      const PlanLayout::Slot& planned = slots_[slot];
      if (planned.bytes - bytes >= alignment || !AreGone(planned)) return nullptr;
      state_[slot] = State::kPlaced;
      return &planned;
    }
    // The buffer of request `slot`, which was placed, was released.
    void Release(uint32_t slot) const { state_[slot] = State::kGone; }

   private:
    static constexpr uint8_t kGoneByte = static_cast<uint8_t>(State::kGone);
    static_assert(kGoneByte == 0);

    // Of several tenants; of a request outside, which has none, of bytes that are nearly SIZE_MAX.
    bool AreGone(const PlanLayout::Slot& planned) const {
      uint32_t i = planned.tenants_begin;
      while (i < planned.tenants_end && state_[tenants_[i]] == State::kGone) ++i;
      return i == planned.tenants_end && planned.bytes > 0;
    }

    const PlanLayout::Slot* slots_ = nullptr;
    const uint32_t* tenants_ = nullptr;
    State* state_ = nullptr;
  };

  // Heap memory.
  size_t state_bytes() const;

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  struct Visit {
    uint32_t slot;
    uint32_t next_tenant;
  };

  // A tenant once gone stays gone in its cycle, so the first tenants alone tell.
  bool AllGone(const PlanLayout::Slot& slot) {
    for (uint32_t i = slot.tenants_begin; i < slot.tenants_end; ++i) {
      const uint32_t tenant = layout_->tenant(i);
      const State state = state_[tenant];
      if (state == State::kGone) continue;
      if (state == State::kPlaced || BlockerOf(tenant) != kNobody) return false;
    }
    return true;
  }
  void Miss(uint32_t slot);
  // A request that is alive in the range of `slot` or of an unplaced tenant of it.
  uint32_t BlockerOf(uint32_t slot);

  const PlanLayout* layout_;
  std::vector<State> state_;       // and two more: one always kGone, one never
  std::vector<uint32_t> blocker_;  // of a kBlocked slot: who was found alive in its range
  std::vector<Visit> path_;        // scratch of BlockerOf, large enough for any path
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_FOLLOWER_H_
