// Plans by putting buffers one after the other into a gap, in many orders.
#ifndef TIDEPOOL_MEMORY_PLANNING_ORDER_PLANNER_H_
#define TIDEPOOL_MEMORY_PLANNING_ORDER_PLANNER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/fit_list.h"
#include "tidepool/memory/planning/interval_fit.h"
#include "tidepool/memory/planning/item_orders.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {

// The engine of PlanGreedy (greedy_planner.h, with its sources) and of SearchPlanner's local
// search. `problem` and `features` must outlive it. Work is in units of FitList::work.
class OrderPlanner {
 public:
  OrderPlanner(const SectionedProblem& problem, const ItemFeatures& features)
      : problem_(problem), items_(problem.items), features_(features), offsets_(items_.size()) {
    if (IntervalFit::IsFasterFor(problem)) by_time_.emplace(problem);
  }

  // What PlanGreedy does: the two below within its allowance of work, at most 1 ms for 500 buffers; of
  // many, the plan in the order of time, and what an order makes of it if that is not too much work.
  void PlanGreedily();

  // Of Repair(), a few milliseconds.
  static constexpr int64_t kWorkOfRound = 25000;

  // Tries the fixed orders until one reaches the lower bound or the work is spent. At least one is
  // tried.
  void TryOrders(int64_t work);

  // Goes on from the best order, after TryOrders: repeats it, moving the buffer that spoils a
  // repetition halfway to the front for the next, until the lower bound is reached or the work is
  // spent.
  void Repair(int64_t work);

  // Asked now and then within a plan, which is given up when it says so and there is another one.
  void GiveUpWhen(std::function<bool()> give_up) { give_up_ = std::move(give_up); }

  // Of the best plan so far, in units.
  int64_t peak() const { return best_peak_; }
  const MappedVector<int64_t>& offsets() const { return best_offsets_; }

 private:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

  int64_t Work() const { return by_time_.has_value() ? by_time_->work() : placed_.work(); }
  // Plans in the order of order_; keeps the plan if it is the best. True if there is nothing more
  // to gain or to spend.
  bool Place(FitList::Fit fit);

  const SectionedProblem& problem_;
  const MappedVector<SectionItem>& items_;
  const ItemFeatures& features_;
  std::function<bool()> give_up_;
  FitList placed_;
  std::optional<IntervalFit> by_time_;  // instead, where it is faster
  int64_t work_limit_ = 0;              // looked at after each plan
  int64_t hard_limit_ = kUnlimited;     // a plan is given up here, except when there is none
  MappedVector<int32_t> order_;
  MappedVector<int64_t> offsets_;
  size_t spoiler_ = 0;  // in order_: the item that reached the peak of the last plan
  bool repairing_ = false;
  int64_t best_peak_ = kUnlimited;
  MappedVector<int64_t> best_offsets_;
  MappedVector<int32_t> best_order_;
  FitList::Fit best_fit_ = FitList::Fit::kFirst;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_ORDER_PLANNER_H_
