// Memory placement by search: starts from the greedy plan and improves it as long as it may.
//
//   SearchPlanner planner(buffers, {.alignment = 64, .time_limit = absl::Seconds(1)});
//   Placement plan = planner.Run();
//
// Two engines in rounds of doubling budgets: a complete depth-first search for a target peak
// (tree_search.h) with several orders of trying buffers, and local search on the greedy order
// (order_planner.h). When minimising, the targets are the proven lower bound and the middles
// between what could not be reached in this round and the best plan. The complete search also
// proves targets unreachable, which raises the lower bound; when it meets the plan, the plan is
// optimal and the search ends.
#ifndef TIDEPOOL_MEMORY_PLANNING_SEARCH_PLANNER_H_
#define TIDEPOOL_MEMORY_PLANNING_SEARCH_PLANNER_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

struct SearchOptions {
  int64_t alignment = 64;  // bytes
  // Bytes the plan must fit; the search ends when it does. 0: the smallest peak. A capacity that
  // is proven too small is treated like 0.
  int64_t capacity = 0;
  absl::Duration time_limit = absl::Seconds(10);
  // The same in processor time of the thread that calls Run.
  absl::Duration processor_time_limit = absl::InfiniteDuration();
  // Nodes of the complete search, 1 to 50 us each for hundreds of buffers; 0: no limit. If it, and not the time, ends the
  // search, the result is the same on every machine.
  int64_t node_budget = 0;
  std::stop_token stop;
};

class SearchPlanner {
 public:
  // Copies `buffers`. Throws what CheckPlacementProblem throws, and Error(kInvalidArgument) for a
  // negative capacity or node budget.
  SearchPlanner(absl::Span<const LifetimeBuffer> buffers, SearchOptions options);
  ~SearchPlanner();
  SearchPlanner(const SearchPlanner&) = delete;
  SearchPlanner& operator=(const SearchPlanner&) = delete;

  // Always a valid placement, at worst the greedy one, never with a larger peak than that.
  // `lower_bound` is the largest live sum or what was proven beyond it. Ends at the lower bound,
  // at the capacity, or within about 10 ms of a time limit or a request to stop, whichever is
  // first; but the greedy part comes first in any case (20 ms for 4000 buffers, half a second for
  // 20000). Problems of more than 4000 buffers get local search only. Takes up to 3 MiB of stack and
  // 128 MiB of memory. Call once.
  Placement Run();

  // Of the complete search, so far; for problems too large for it, the same measure of work.
  int64_t nodes() const;

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_SEARCH_PLANNER_H_
