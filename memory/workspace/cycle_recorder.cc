#include "tidepool/memory/workspace/cycle_recorder.h"

namespace tidepool {

void CycleRecorder::BeginWithin(const CyclePlan& plan, const RequestView& made) {
  const uint32_t count = made.count();
  requests_.reserve(std::max<size_t>(64, 2 * size_t{count}));
  pins_.reserve(count);
  requests_.assign(plan.requests.begin(), plan.requests.begin() + count);
  pins_.clear();
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (made.buffers[slot] == nullptr) {
      requests_[slot].upper = std::min<int64_t>(requests_[slot].upper, count);
    } else if (made.IsInPages(slot)) {
      pins_.push_back({slot, made.offset(slot)});
    }
  }
  signature_ = count == 0 ? kNoRequests : plan.signatures[count - 1];
  left_ = &plan;
  active_ = true;
}

}  // namespace tidepool
