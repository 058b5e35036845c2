// What a cycle requests, written down: sizes in order, and lifetimes counted in requests, which loses
// nothing because whatever is released between the same two requests may be treated alike.
//
// A cycle is recorded from its beginning where nothing is known of it, else from the request where it
// leaves its plan; what came before is known from the plan. Threads: the one that has the cycle open.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CYCLE_RECORDER_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CYCLE_RECORDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/workspace/cycle_plan.h"

namespace tidepool {

// The requests a cycle has made so far: null where the buffer is gone.
struct RequestView {
  absl::Span<Buffer* const> buffers;  // by request number
  const std::byte* base;              // of the pages

  uint32_t count() const { return static_cast<uint32_t>(buffers.size()); }
  // Whether request `slot` is alive in the pages, and where.
  bool IsInPages(uint32_t slot) const {
    return buffers[slot] != nullptr && buffers[slot]->request.spill == nullptr;
  }
  int64_t offset(uint32_t slot) const { return buffers[slot]->data - base; }
};

class CycleRecorder {
 public:
  bool active() const { return active_; }
  // A cycle begins; recorded or not.
  void Begin(bool active) noexcept {
    active_ = active;
    requests_.clear();
    pins_.clear();
    left_ = nullptr;
    signature_ = kNoRequests;
  }
  // Recorded from here on: the requests made so far are those of `plan`. Throws std::bad_alloc,
  // nothing changed.
  void BeginWithin(const CyclePlan& plan, const RequestView& made);

  // Memory for one more request. Throws std::bad_alloc.
  void Reserve() {
    if (requests_.size() == requests_.capacity()) {
      requests_.reserve(std::max<size_t>(64, requests_.size() * 2));
    }
  }
  // Request number `slot`, for which there is memory.
  void Add(uint32_t slot, size_t rounded) noexcept {
    requests_.push_back({slot, 0, static_cast<int64_t>(rounded)});
    signature_ = ExtendSignature(signature_, rounded);
  }
  // The buffer of request `slot` went when `count` requests had been made.
  void Release(uint32_t slot, uint32_t count) noexcept {
    if (active_) requests_[slot].upper = count;
  }
  void Stop() noexcept { active_ = false; }

  const std::vector<LifetimeBuffer>& requests() const { return requests_; }
  // What was alive where the cycle left its first plan.
  const std::vector<PinnedBuffer>& pins() const { return pins_; }
  // That plan, for comparison only; null when the cycle was recorded from its beginning.
  const CyclePlan* left_plan() const { return left_; }
  uint64_t signature() const { return signature_; }
  size_t state_bytes() const { return requests_.capacity() * sizeof(LifetimeBuffer); }

 private:
  bool active_ = false;
  std::vector<LifetimeBuffer> requests_;
  std::vector<PinnedBuffer> pins_;
  const CyclePlan* left_ = nullptr;
  uint64_t signature_ = kNoRequests;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CYCLE_RECORDER_H_
