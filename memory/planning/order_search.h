// Anytime search for a placement: better the longer it may run.
//
// A placement is made by putting buffers one after the other at the lowest offset that is free; the
// search changes that order. It moves a buffer that reaches the peak, or something in its way, to
// an earlier place, keeps changes that do not raise the peak (now and then one that does), and
// starts again from the best order when it is stuck.
#ifndef TIDEPOOL_MEMORY_PLANNING_ORDER_SEARCH_H_
#define TIDEPOOL_MEMORY_PLANNING_ORDER_SEARCH_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

struct OrderSearchOptions {
  int64_t alignment = 64;
  int64_t capacity = 0;        // stop as soon as the peak is at most this; 0: go on to the bound
  int64_t max_orders = 0;      // tried; 0: until `stop` says so
  uint64_t seed = 1;           // the same seed and max_orders give the same placement
};

// The best placement found, never worse than PlanGreedy's. Stops at the live lower bound, at the
// capacity, after max_orders, or when `stop` (asked after each order) returns true. Throws like
// CheckPlacementProblem. Memory: linear in the number of pairs that are alive together.
Placement SearchOrders(absl::Span<const LifetimeBuffer> buffers, const OrderSearchOptions& options,
                       absl::FunctionRef<bool()> stop);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_ORDER_SEARCH_H_
