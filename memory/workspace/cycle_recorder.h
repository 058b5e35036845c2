// What a cycle requests, written down where no plan tells it: from its beginning when none is followed,
// else from the request where it leaves its plan. Or only hashed, to know whether it comes again. Lifetimes are counted in requests, which loses
// nothing, because whatever is released between the same two requests may be treated alike; the slots of
// the requests (request_slot.h) know them.
//
// Threads: the one that has the cycle open.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CYCLE_RECORDER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CYCLE_RECORDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/workspace/cycle_plan.h"
#include "tidepool/memory/workspace/request_slot.h"

namespace tidepool {

class CycleRecorder {
 public:
  bool active() const { return active_; }
  // A cycle begins; recorded or not.
  void Begin(bool active) noexcept {
    active_ = active;
    requests_.clear();
    pins_.clear();
    left_ = left_last_ = nullptr;
    signature_ = kNoRequests;
  }
  // The cycle leaves `plan`, which it has followed so far, and is recorded from here on if it is not
  // yet: the requests made until then are those of `plan`, the first one that was left. Cheap while the
  // plan is the one that was left last. Throws std::bad_alloc, nothing changed.
  void Leave(const CyclePlan& plan, const RequestView& made);

  bool has_reserved() const { return requests_.size() < requests_.capacity(); }
  // There is memory for so many, those that were written down among them.
  size_t reserved() const { return requests_.capacity(); }
  // Memory for one more request. Throws std::bad_alloc.
  void Reserve() {
    if (!has_reserved()) {
      requests_.reserve(std::max<size_t>(64, requests_.size() * 2));
    }
  }
  // A request of a cycle that is not written down, so that it is known when the same come again.
  void Hash(size_t rounded) noexcept {
    if (signature_ == kNoRequests) first_bytes_ = rounded;
    signature_ = ExtendSignature(signature_, rounded);
  }
  // Nobody learns from this cycle: what was written down goes, and the rest is only hashed.
  void Stop() noexcept {
    active_ = false;
    requests_.clear();
    pins_.clear();
  }
  // Request number `slot`, for which there is memory.
  void Add(uint32_t slot, size_t rounded) noexcept {
    requests_.push_back({slot, 0, static_cast<int64_t>(rounded)});
    Hash(rounded);
  }
  // So that Add() and WriteDown() of so many requests need no memory. Throws std::bad_alloc.
  void ReserveFor(size_t requests) { requests_.reserve(requests); }
  // What has followed `plan` from its beginning is written down now. Without memory it is not.
  void WriteDown(const CyclePlan& plan, uint32_t count) noexcept;
  // All requests are made, and what is alive lives to the end. What was recorded has its lifetimes
  // then.
  void Finish(const RequestView& made) noexcept {
    for (uint32_t slot = 0; slot < requests_.size(); ++slot)
      requests_[slot].upper = made.upper(slot);
    active_ = false;
  }

  // Of a finished cycle; empty when it was not recorded.
  const MappedVector<LifetimeBuffer>& requests() const { return requests_; }
  // What was alive where the cycle left the plans that it followed one after the other, and the first
  // of these, for comparison only; null when it was recorded from its beginning.
  const std::vector<PinnedBuffer>& pins() const { return pins_; }
  const CyclePlan* left_plan() const { return left_; }
  uint32_t left_at() const { return left_at_; }  // after so many requests
  uint64_t signature() const { return signature_; }
  // Of the first request, where signature() is of any.
  size_t first_bytes() const { return first_bytes_; }
  // Between cycles: gives back what it was written into.
  void Trim() noexcept {
    if (active_) return;
    MappedVector<LifetimeBuffer>().swap(requests_);
    std::vector<PinnedBuffer>().swap(pins_);
  }
  size_t state_bytes() const { return requests_.capacity() * sizeof(LifetimeBuffer); }

 private:
  bool active_ = false;
  MappedVector<LifetimeBuffer> requests_;
  std::vector<PinnedBuffer> pins_;
  const CyclePlan* left_ = nullptr;
  uint32_t left_at_ = 0;
  const CyclePlan* left_last_ = nullptr;
  uint64_t signature_ = kNoRequests;
  size_t first_bytes_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CYCLE_RECORDER_H_
