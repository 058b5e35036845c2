#include "tidepool/memory/workspace/cycle_recorder.h"

namespace tidepool {

void CycleRecorder::Leave(const CyclePlan& plan, const RequestView& made) {
  if (active_) return;
  const uint32_t count = made.count();
  requests_.reserve(std::max<size_t>(64, 2 * size_t{count}));
  pins_.reserve(count);
  requests_.assign(plan.requests.begin(), plan.requests.begin() + count);
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (made.IsInPages(slot)) pins_.push_back({slot, made.offset(slot)});
  }
  signature_ = count == 0 ? kNoRequests : plan.signatures[count - 1];
  left_ = &plan;
  active_ = true;
}

}  // namespace tidepool
