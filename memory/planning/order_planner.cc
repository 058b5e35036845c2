#include "tidepool/memory/planning/order_planner.h"

#include <algorithm>

namespace tidepool {
namespace {

// In units of FitList::work, each 30 to 100 ns.
constexpr int64_t kOrderWork = 6000;
constexpr int64_t kRepairWork = 2500;

}  // namespace

void OrderPlanner::PlanGreedily() {
  hard_limit_ = placed_.work() + kOrderWork + kRepairWork;
  TryOrders(kOrderWork);
  Repair(kRepairWork);
  hard_limit_ = kUnlimited;
  repairing_ = false;  // The last repetition may have been given up in its midst.
}

void OrderPlanner::TryOrders(int64_t work) {
  work_limit_ = placed_.work() + work;
  const ItemFeatures& f = features_;
  const auto try_order = [&](std::initializer_list<const std::vector<double>*> features,
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
         try_order({&f.size, &f.width}, Fit::kBest) ||
         try_order({&f.early, &f.size}, Fit::kBest));
}

void OrderPlanner::Repair(int64_t work) {
  work_limit_ = placed_.work() + work;
  if (items_.empty() || best_peak_ == problem_.lower_bound) return;
  if (!repairing_) {
    order_ = best_order_;
    if (Place(best_fit_)) return;
    repairing_ = true;
  }
  do {
    const auto spoiler = order_.begin() + spoiler_;
    std::rotate(order_.begin() + spoiler_ / 2, spoiler, spoiler + 1);
  } while (!Place(best_fit_));
}

bool OrderPlanner::Place(FitList::Fit fit) {
  placed_.Clear();
  int64_t peak = 0;
  for (size_t k = 0; k < order_.size() && peak < best_peak_; ++k) {
    if (placed_.work() >= hard_limit_ && best_peak_ != kUnlimited) return true;
    const int32_t i = order_[k];
    offsets_[i] = placed_.FindOffset(items_[i], fit);
    placed_.Insert(items_[i], offsets_[i]);
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
  return best_peak_ == problem_.lower_bound || placed_.work() >= work_limit_;
}

}  // namespace tidepool
