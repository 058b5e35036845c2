#include "tidepool/memory/planning/order_planner.h"

#include <algorithm>
#include <utility>

#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/online_planner.h"

namespace tidepool {
namespace {

// In units of FitList::work, each 30 to 100 ns.
constexpr int64_t kOrderWork = 6000;
constexpr int64_t kRepairWork = 2500;
constexpr size_t kItemsAtOnce = 1024;

}  // namespace

void OrderPlanner::PlanGreedily() {
  if (problem_.has_many_items()) {
    ItemOffsets online = PlanOnline(problem_);
    best_peak_ = online.peak;
    best_offsets_ = std::move(online.offsets);
    if (best_peak_ == problem_.lower_bound) return;
    if (WorkOfOrder(problem_) > kMostWorkOfOrders) return;
    hard_limit_ = Work() + kMostWorkOfOrders;
    TryOrders(kOrderWork);
  } else {
    hard_limit_ = Work() + kOrderWork + kRepairWork;
    TryOrders(kOrderWork);
    Repair(kRepairWork);
  }
  hard_limit_ = kUnlimited;
  repairing_ = false;  // The last repetition may have been given up in its midst.
}

void OrderPlanner::TryOrders(int64_t work) {
  work_limit_ = Work() + work;
  const ItemFeatures& f = features_;
  const auto try_order = [&](std::initializer_list<const MappedVector<double>*> features,
                             FitList::Fit fit) {
    SortItems(features, order_);
    return Place(fit);
  };
  using Fit = FitList::Fit;
  // The second is for nested lifetimes: activations that wait for their backward step fit exactly
  // when stacked.
  (void)(try_order({&f.size, &f.width}, Fit::kFirst) ||
         try_order({&f.early, &f.width}, Fit::kFirst) ||
         try_order({&f.width, &f.size}, Fit::kFirst) ||
         try_order({&f.area, &f.size}, Fit::kFirst) ||
         try_order({&f.crowd, &f.area}, Fit::kFirst) ||
         try_order({&f.crowd, &f.width}, Fit::kFirst) ||
         try_order({&f.crowd, &f.size}, Fit::kFirst) ||
         try_order({&f.late, &f.width}, Fit::kFirst) ||
         try_order({&f.size, &f.width}, Fit::kBest) || try_order({&f.early, &f.size}, Fit::kBest));
}

void OrderPlanner::Repair(int64_t work) {
  work_limit_ = Work() + work;
  if (items_.empty() || best_peak_ == problem_.lower_bound) return;
  if (problem_.has_many_items() && !give_up_)
    hard_limit_ = Work() + std::max(work, kMostWorkOfOrders);
  if (!repairing_) {
    order_ = best_order_;
    if (order_.empty()) SortItems({&features_.size, &features_.width}, order_);
    if (Place(best_fit_)) return;
    repairing_ = true;
  }
  do {
    const auto spoiler = order_.begin() + spoiler_;
    std::rotate(order_.begin() + spoiler_ / 2, spoiler, spoiler + 1);
  } while (!Place(best_fit_));
}

bool OrderPlanner::Place(FitList::Fit fit) {
  if (by_time_.has_value()) {
    by_time_->Clear();
  } else {
    placed_.Clear();
  }
  int64_t peak = 0;
  for (size_t k = 0; k < order_.size() && peak < best_peak_; ++k) {
    if (Work() >= hard_limit_ && best_peak_ != kUnlimited) return true;
    if (k % kItemsAtOnce == kItemsAtOnce - 1 && give_up_ && give_up_() &&
        best_peak_ != kUnlimited) {
      return true;
    }
    const int32_t i = order_[k];
    if (by_time_.has_value()) {
      offsets_[i] = by_time_->FindOffset(items_[i], fit);
      by_time_->Insert(items_[i], offsets_[i]);
    } else {
      offsets_[i] = placed_.FindOffset(items_[i], fit);
      placed_.Insert(items_[i], offsets_[i]);
    }
    if (offsets_[i] + items_[i].size > peak) {
      peak = offsets_[i] + items_[i].size;
      spoiler_ = k;
    }
  }
  if (peak < best_peak_) {
    best_peak_ = peak;
    best_offsets_ = offsets_;
    best_order_ = order_;
    best_fit_ = fit;
  }
  return best_peak_ == problem_.lower_bound || Work() >= work_limit_;
}

}  // namespace tidepool
