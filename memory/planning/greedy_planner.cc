#include "tidepool/memory/planning/greedy_planner.h"

#include "tidepool/memory/planning/item_orders.h"
#include "tidepool/memory/planning/order_planner.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {
namespace {

// In units of FitList::work, each 40 to 80 ns.
constexpr int64_t kOrderWork = 8000;
constexpr int64_t kRepairWork = 4000;

}  // namespace

Placement PlanGreedy(absl::Span<const LifetimeBuffer> buffers, int64_t alignment) {
  const SectionedProblem problem = MakeSections(buffers, alignment);
  const ItemFeatures features(buffers, problem);
  OrderPlanner planner(problem, features);
  planner.TryOrders(kOrderWork);
  planner.Repair(kRepairWork);
  return ToPlacement(problem, planner.offsets(), buffers.size(), alignment);
}

}  // namespace tidepool
