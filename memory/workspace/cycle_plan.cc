#include "tidepool/memory/workspace/cycle_plan.h"

#include <algorithm>
#include <utility>

#include "tidepool/memory/planning/greedy_planner.h"

namespace tidepool {

bool SamePlaces(const PlacedRequests& a, const CyclePlan& b) {
  const auto has = [&](const int64_t& offset) {
    return static_cast<size_t>(offset) ==
           b.layout.offset(static_cast<uint32_t>(&offset - a.offsets.data()));
  };
  return a.offsets.size() == b.layout.size() &&
         std::all_of(a.offsets.begin(), a.offsets.end(), has) &&
         std::equal(a.requests.begin(), a.requests.end(), b.requests.begin(), b.requests.end(),
                    [](const auto& x, const auto& y) { return x.upper == y.upper; });
}

PlacedRequests PlaceRequests(absl::Span<const LifetimeBuffer> requests,
                             absl::Span<const PinnedBuffer> pins, size_t alignment) {
  PlacedRequests placed;
  placed.pins = PinsThatAreApart(requests, pins, static_cast<int64_t>(alignment));
  Placement placement = PlanAround(requests, placed.pins, static_cast<int64_t>(alignment));
  placed.requests.assign(requests.begin(), requests.end());
  placed.offsets = std::move(placement.offsets);
  placed.peak_bytes = static_cast<size_t>(placement.peak);
  placed.lower_bound_bytes = static_cast<size_t>(placement.lower_bound);
  for (const LifetimeBuffer& request : requests) {
    placed.requested_bytes += static_cast<size_t>(request.size);
  }
  return placed;
}

PlacedRequests PlaceWithin(absl::Span<const LifetimeBuffer> requests, size_t alignment,
                           size_t most_peak) {
  PlacedRequests placed = PlaceRequests(requests, {}, alignment);
  if (placed.peak_bytes <= most_peak || placed.lower_bound_bytes > most_peak) return placed;
  Placement placement =
      PlanGreedyWithin(requests, static_cast<int64_t>(alignment), static_cast<int64_t>(most_peak));
  placed.offsets = std::move(placement.offsets);
  placed.peak_bytes = static_cast<size_t>(placement.peak);
  return placed;
}

size_t CyclePlan::state_bytes() const {
  return sizeof(CyclePlan) + layout.state_bytes() + requests.capacity() * sizeof(LifetimeBuffer) +
         offsets.capacity() * sizeof(int64_t) + pins.capacity() * sizeof(PinnedBuffer) +
         signatures.capacity() * sizeof(uint64_t);
}

std::shared_ptr<const CyclePlan> MakeCyclePlan(PlacedRequests placed, size_t limit) {
  auto plan = std::make_shared<CyclePlan>();
  static_cast<PlacedRequests&>(*plan) = std::move(placed);
  plan->layout = PlanLayout(plan->requests, plan->offsets, limit);
  std::vector<int64_t>().swap(plan->offsets);  // the layout has them
  plan->signatures.reserve(plan->requests.size());
  uint64_t signature = kNoRequests;
  for (const LifetimeBuffer& request : plan->requests) {
    signature = ExtendSignature(signature, static_cast<size_t>(request.size));
    plan->signatures.push_back(signature);
  }
  return plan;
}

}  // namespace tidepool
