#include "tidepool/nn/budget/parameter_plan.h"

#include <utility>

#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool::nn {

ParameterPlan PlanParameters(absl::Span<const UnitUse> units, int places, int ahead,
                             int state_arrays, int64_t alignment) {
  ParameterPlan plan;
  plan.ahead = ahead;
  std::vector<LifetimeBuffer> lifetimes;
  for (const UnitUse& unit : units)
    lifetimes.push_back({plan.Outer(unit), unit.last + 1, unit.bytes});
  Placement placed = PlanGreedy(lifetimes, alignment);
  plan.inference_values = std::move(placed.offsets);
  plan.inference_bytes = placed.peak;

  lifetimes.clear();
  for (const UnitUse& unit : units)
    lifetimes.push_back({plan.Outer(unit), plan.Inner(unit, places) + 1, unit.bytes});
  for (const UnitUse& unit : units) lifetimes.push_back({unit.first, unit.last + 1, unit.bytes});
  for (const UnitUse& unit : units)
    lifetimes.push_back(
        {plan.Outer(unit), plan.StateFrom(unit, places) + 1, unit.bytes * state_arrays});
  placed = PlanGreedy(lifetimes, alignment);
  const auto count = static_cast<std::ptrdiff_t>(units.size());
  const auto begin = placed.offsets.begin();
  plan.values.assign(begin, begin + count);
  plan.gradients.assign(begin + count, begin + 2 * count);
  plan.states.assign(begin + 2 * count, placed.offsets.end());
  plan.bytes = placed.peak;
  return plan;
}

}  // namespace tidepool::nn
