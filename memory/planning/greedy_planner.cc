#include "tidepool/memory/planning/greedy_planner.h"

#include "tidepool/memory/planning/item_orders.h"
#include "tidepool/memory/planning/order_planner.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {

Placement PlanGreedy(absl::Span<const LifetimeBuffer> buffers, int64_t alignment) {
  const SectionedProblem problem = MakeSections(buffers, alignment);
  const ItemFeatures features(buffers, problem);
  OrderPlanner planner(problem, features);
  planner.PlanGreedily();
  return ToPlacement(problem, planner.offsets(), buffers.size(), alignment);
}

Placement PlanGreedyWithin(absl::Span<const LifetimeBuffer> buffers, int64_t alignment,
                           int64_t capacity) {
  constexpr int kRounds = 40;
  const SectionedProblem problem = MakeSections(buffers, alignment);
  const ItemFeatures features(buffers, problem);
  OrderPlanner planner(problem, features);
  planner.PlanGreedily();
  const int64_t units = capacity / alignment;
  if (problem.lower_bound <= units) {
    for (int round = 0; round < kRounds && planner.peak() > units; ++round)
      planner.Repair(OrderPlanner::kWorkOfRound);
  }
  return ToPlacement(problem, planner.offsets(), buffers.size(), alignment);
}

}  // namespace tidepool
