#include "tidepool/memory/workspace/cycle_recorder.h"

namespace tidepool {

void CycleRecorder::Leave(const CyclePlan& plan, const RequestView& made) {
  if (left_ != nullptr) return;
  const uint32_t count = made.count();
  pins_.clear();
  pins_.reserve(count);
  if (!active_) requests_.reserve(std::max<size_t>(64, 2 * size_t{count}));
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (made.IsInPages(slot)) pins_.push_back({slot, made.offset(slot)});
  }
  left_ = &plan;
  if (active_) return;
  requests_.assign(plan.requests.begin(), plan.requests.begin() + count);
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (made.buffers[slot] != nullptr) continue;
    requests_[slot].upper = std::min<int64_t>(requests_[slot].upper, count);
  }
  signature_ = count == 0 ? kNoRequests : plan.signatures[count - 1];
  active_ = true;
}

}  // namespace tidepool
