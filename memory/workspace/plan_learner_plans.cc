// How a plan is made that the learner wants, and what becomes of it.
#include <algorithm>
#include <utility>
#include <vector>

#include "tidepool/memory/workspace/plan_learner.h"

namespace tidepool {
namespace {

// What the plan says of the requests that were made is a plan for them, and one that a cycle can
// leave for the whole at any time.
PlacedRequests Beginning(const CyclePlan& whole, uint32_t requests, size_t alignment) {
  PlacedRequests beginning;
  beginning.requests.assign(whole.requests.begin(), whole.requests.begin() + requests);
  beginning.offsets.assign(whole.offsets.begin(), whole.offsets.begin() + requests);
  for (size_t i = 0; i < requests; ++i) {
    LifetimeBuffer& request = beginning.requests[i];
    request.upper = std::min<int64_t>(request.upper, requests);
    beginning.pins.push_back({i, beginning.offsets[i]});
    beginning.peak_bytes = std::max(
        beginning.peak_bytes, static_cast<size_t>(beginning.offsets[i] + request.size));
    beginning.requested_bytes += static_cast<size_t>(request.size);
  }
  beginning.lower_bound_bytes =
      static_cast<size_t>(LiveLowerBound(beginning.requests, static_cast<int64_t>(alignment)));
  return beginning;
}

// The first `count` requests where `plan` has them, and those of `pins` that come after.
std::vector<PinnedBuffer> PinsOfBeginning(const CyclePlan& plan, uint32_t count,
                                          std::vector<PinnedBuffer> pins) {
  std::erase_if(pins, [count](const PinnedBuffer& pin) { return pin.buffer < count; });
  std::vector<PinnedBuffer> all;
  all.reserve(count + pins.size());
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (plan.layout.IsOutside(slot)) continue;
    all.push_back({slot, static_cast<int64_t>(plan.layout.offset(slot))});
  }
  all.insert(all.end(), pins.begin(), pins.end());
  return all;
}

// `wanted.lengthened` with the lifetimes that requests of the common beginning have in the cycle.
PlacedRequests Lengthen(const WantedPlan& wanted, const EndedCycle& cycle) {
  const CyclePlan& plan = *wanted.lengthened;
  std::vector<LifetimeBuffer> requests = plan.requests;
  const auto last = static_cast<int64_t>(requests.size());
  for (uint32_t slot = 0; slot < cycle.recorder->left_at(); ++slot) {
    const int64_t upper = std::max(wanted.same->requests[slot].upper, cycle.upper(slot));
    requests[slot].upper = std::max(requests[slot].upper, std::min(upper, last));
  }
  return PlaceRequests(requests, plan.pins, wanted.alignment);
}

PlacedRequests Place(const WantedPlan& wanted, const EndedCycle& cycle) {
  if (wanted.lengthened != nullptr) return Lengthen(wanted, cycle);
  std::vector<LifetimeBuffer> requests = cycle.Lifetimes();
  std::vector<PinnedBuffer> pins;
  if (wanted.pins) {
    pins = cycle.recorder->pins();
    if (wanted.same != nullptr) {
      const CyclePlan* const left = cycle.recorder->left_plan();
      if (left == nullptr || left == wanted.same.get()) {
        pins = wanted.same->pins;
      } else if (wanted.whole_beginning) {
        pins = PinsOfBeginning(*left, cycle.recorder->left_at(), std::move(pins));
      }
    }
  }
  if (wanted.same != nullptr) {
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].upper = std::max(requests[i].upper, wanted.same->requests[i].upper);
    }
  }
  return PlaceRequests(requests, pins, wanted.alignment);
}

}  // namespace

std::shared_ptr<const CyclePlan> PlanLearner::MakePlan(const WantedPlan& wanted,
                                                       const EndedCycle& cycle) {
  switch (wanted.kind) {
    case WantedPlan::Kind::kCycle:
      return MakeCyclePlan(Place(wanted, cycle), wanted.limit_bytes);
    case WantedPlan::Kind::kBeginning:
      return MakeCyclePlan(Beginning(*wanted.whole, cycle.made.count(), wanted.alignment),
                           wanted.limit_bytes);
    case WantedPlan::Kind::kAlone:
      break;
  }
  PlacedRequests alone = PlaceRequests(wanted.seen, {}, wanted.alignment);
  if (alone.peak_bytes >= wanted.peak_to_beat - wanted.peak_to_beat / 16) return nullptr;
  return MakeCyclePlan(std::move(alone), wanted.limit_bytes);
}

const LearnedCycle* PlanLearner::Adopt(const WantedPlan& wanted,
                                       std::shared_ptr<const CyclePlan> plan) {
  if (!in_making_.End(wanted.learning)) return nullptr;
  // Pages that took their first and only size meanwhile cannot hold it.
  if (plan == nullptr || wanted.limit_bytes != most_bytes()) return nullptr;
  const bool is_new = plans_.Find(plan->signature(), plan->requests.size()) == nullptr;
  const LearnedCycle* const added = Install(std::move(plan));
  if (is_new) {
    // Of a cycle that was never seen before, as far as is known.
    plans_.last_used().guessed = keeps_plans() && !comes_again_ && !effort_.waits();
    effort_.Spent(added->plan->requests.size());
  }
  plans_.last_used().alone = wanted.kind == WantedPlan::Kind::kAlone;
  return added;
}

}  // namespace tidepool
