#include "tidepool/memory/workspace/cycle_recorder.h"

#include <algorithm>
#include <new>

namespace tidepool {

void CycleRecorder::Leave(const CyclePlan& plan, const RequestView& made) {
  if (left_last_ == &plan) return;
  const uint32_t count = made.count();
  if (!active_) requests_.reserve(std::max<size_t>(64, 2 * size_t{count}));
  pins_.reserve(pins_.size() + count);
  // Pins are in the order of their requests; those of plans left before stay.
  size_t known = 0;
  const size_t before = pins_.size();
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (!made.IsInPlan(slot)) continue;
    while (known < before && pins_[known].buffer < slot) ++known;
    if (known < before && pins_[known].buffer == slot) continue;
    pins_.push_back({slot, made.offset(slot)});
  }
  // (A merge would need memory.)
  if (before > 0) {
    std::sort(pins_.begin(), pins_.end(),
              [](const PinnedBuffer& a, const PinnedBuffer& b) { return a.buffer < b.buffer; });
  }
  left_last_ = &plan;
  if (active_) return;
  requests_.assign(plan.requests.begin(), plan.requests.begin() + count);
  signature_ = count == 0 ? kNoRequests : plan.signatures[count - 1];
  if (count > 0) first_bytes_ = static_cast<size_t>(plan.requests.front().size);
  left_ = &plan;
  left_at_ = count;
  active_ = true;
}

void CycleRecorder::WriteDown(const CyclePlan& plan, uint32_t count) noexcept {
  if (count == 0) return;
  try {
    requests_.assign(plan.requests.begin(), plan.requests.begin() + count);
    signature_ = plan.signatures[count - 1];
    first_bytes_ = static_cast<size_t>(plan.requests.front().size);
  } catch (const std::bad_alloc&) {
    requests_.clear();
  }
}

}  // namespace tidepool
