#include "tidepool/memory/planning/search_planner.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/item_orders.h"
#include "tidepool/memory/planning/order_planner.h"
#include "tidepool/memory/planning/sections.h"
#include "tidepool/memory/planning/tree_search.h"

namespace tidepool {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
// Local search between two looks at the clock, in units of FitList::work: about 1 ms.
constexpr int64_t kRepairSlice = 16000;
// Local search per node of the tree search, so that it takes about a tenth of the time.
constexpr int64_t kRepairWorkPerNode = 8;
constexpr int kNumFixedOrders = 4;

// Divides sizes by their greatest common divisor, and returns it. Peaks are sums of sizes, so
// nothing is lost, and capacities between two multiples become the lower one.
int64_t ReduceSizes(SectionedProblem& problem) {
  int64_t divisor = 0;
  for (const SectionItem& item : problem.items) divisor = std::gcd(divisor, item.size);
  if (divisor <= 1) return 1;
  for (SectionItem& item : problem.items) item.size /= divisor;
  for (int64_t& live : problem.live) live /= divisor;
  problem.lower_bound /= divisor;
  return divisor;
}

// Of the calling thread.
absl::Duration ProcessorTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

absl::Duration SteadyTime() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

class SearchPlanner::Search {
 public:
  Search(absl::Span<const LifetimeBuffer> buffers, SearchOptions options)
      : options_(std::move(options)),
        num_buffers_(buffers.size()),
        problem_(MakeSections(buffers, options_.alignment)),
        divisor_(ReduceSizes(problem_)),
        features_(buffers, problem_),
        local_search_(problem_, features_),
        lower_(problem_.lower_bound),
        goal_(options_.capacity / options_.alignment / divisor_) {}

  Placement Run() {
    deadline_ = SteadyTime() + options_.time_limit;
    processor_deadline_ = ProcessorTime() + options_.processor_time_limit;
    local_search_.GiveUpWhen([this] { return Stopped(); });
    local_search_.PlanGreedily();
    TakeLocalBest();
    if (!Done() && TreeSearch::CanSearch(problem_)) tree_search_.emplace(problem_);
    int64_t budget = std::max<int64_t>(256, 2 * static_cast<int64_t>(problem_.items.size()));
    for (; !Done(); budget += budget) {
      if (tree_search_.has_value()) {
        TryTargets(budget);
      } else {
        nodes_ += budget;  // What local search does instead counts as much.
      }
      if (!Stopped()) SearchLocally(budget * kRepairWorkPerNode);
    }
    for (int64_t& offset : best_offsets_) offset *= divisor_;
    Placement placement = ToPlacement(problem_, best_offsets_, num_buffers_, options_.alignment);
    RestorePeak(placement);
    return placement;
  }

  int64_t nodes() const { return nodes_; }

 private:
  // The peak that ends the search. A goal below the lower bound cannot be met.
  int64_t Wanted() const { return std::max(goal_, lower_); }

  bool Stopped() const {
    return options_.stop.stop_requested() || SteadyTime() >= deadline_ ||
           // A system call, unlike the other.
           (processor_deadline_ < absl::InfiniteDuration() &&
            ProcessorTime() >= processor_deadline_);
  }
  bool Done() const { return best_peak_ <= Wanted() || NodesLeft() <= 0 || Stopped(); }
  int64_t NodesLeft() const {
    return options_.node_budget == 0 ? kUnlimited : options_.node_budget - nodes_;
  }

  // From the wanted peak upward, each time half the way to the best plan.
  void TryTargets(int64_t budget) {
    int64_t target = Wanted();
    while (!Done()) {
      const bool is_wanted = target == Wanted();
      // Nearer targets only matter if the wanted peak is out of reach: less effort for them.
      const int num_orders = is_wanted ? kNumFixedOrders + 2 : 2;
      TreeSearch::Result result = TreeSearch::Result::kBudgetSpent;
      for (int k = 0; k < num_orders && result == TreeSearch::Result::kBudgetSpent; ++k) {
        if (Done()) return;
        result = TryTarget(target, budget, k < num_orders - 2 ? k : next_order_++);
      }
      if (result == TreeSearch::Result::kStopped) return;
      if (result == TreeSearch::Result::kDoesNotFit) lower_ = std::max(lower_, target + 1);
      if (result == TreeSearch::Result::kFits) {
        best_peak_ = target;
        best_offsets_ = tree_search_->offsets();
        TightenPeak();
        target = failed_ + (best_peak_ - failed_) / 2;
      } else {
        failed_ = target;
        target += (best_peak_ - target) / 2;
      }
      target = std::max(target, Wanted());
      if (target <= failed_ || target >= best_peak_) break;
    }
    failed_ = 0;
  }

  TreeSearch::Result TryTarget(int64_t target, int64_t budget, int64_t order) {
    SortForTree(order);
    rank_.resize(order_.size());
    for (size_t k = 0; k < order_.size(); ++k) rank_[order_[k]] = static_cast<int32_t>(k);
    const TreeSearch::Result result = tree_search_->Run(
        target, rank_, std::min(budget, NodesLeft()), [this] { return Stopped(); });
    nodes_ += tree_search_->nodes();
    return result;
  }

  // The fixed orders first, then random ones.
  void SortForTree(int64_t order) {
    const ItemFeatures& f = features_;
    switch (order) {
      case 0:
        return SortItems({&f.width, &f.area}, order_);
      case 1:
        return SortItems({&f.size, &f.width}, order_);
      case 2:
        return SortItems({&f.crowd, &f.area, &f.width}, order_);
      case 3:
        return SortItems({&f.area, &f.width}, order_);
      default:
        return SortItemsAtRandom(features_, random_, order_);
    }
  }

  void SearchLocally(int64_t work) {
    for (; work > 0 && best_peak_ > Wanted() && !Stopped(); work -= kRepairSlice) {
      local_search_.Repair(std::min(work, kRepairSlice));
      TakeLocalBest();
    }
  }

  void TakeLocalBest() {
    if (local_search_.peak() >= best_peak_) return;
    best_peak_ = local_search_.peak();
    best_offsets_ = local_search_.offsets();
  }

  // The tree search promises a peak of at most its target.
  void TightenPeak() {
    int64_t peak = 0;
    for (size_t i = 0; i < problem_.items.size(); ++i) {
      peak = std::max(peak, best_offsets_[i] + problem_.items[i].size);
    }
    best_peak_ = peak;
  }

  // ToPlacement knows reduced sizes.
  void RestorePeak(Placement& placement) const {
    placement.peak = best_peak_ * divisor_ * options_.alignment;
    placement.lower_bound = lower_ * divisor_ * options_.alignment;
  }

  const SearchOptions options_;
  absl::Duration deadline_;
  absl::Duration processor_deadline_;
  const size_t num_buffers_;
  SectionedProblem problem_;  // sizes in units of the alignment times divisor_
  const int64_t divisor_;
  const ItemFeatures features_;
  OrderPlanner local_search_;
  std::optional<TreeSearch> tree_search_;
  std::mt19937_64 random_{1};
  MappedVector<int32_t> order_;
  std::vector<int32_t> rank_;
  int64_t next_order_ = kNumFixedOrders;  // beyond the fixed ones: random
  int64_t lower_;                         // proven
  const int64_t goal_;                    // 0: none
  int64_t failed_ = 0;                    // not reached in this round
  int64_t nodes_ = 0;
  int64_t best_peak_ = kUnlimited;
  MappedVector<int64_t> best_offsets_;
};

SearchPlanner::SearchPlanner(absl::Span<const LifetimeBuffer> buffers, SearchOptions options) {
  if (options.capacity < 0) {
    ThrowInvalidArgument(
        absl::StrCat("placement search: capacity ", options.capacity, ", expected >= 0 bytes"));
  }
  if (options.node_budget < 0) {
    ThrowInvalidArgument(
        absl::StrCat("placement search: node budget ", options.node_budget, ", expected >= 0"));
  }
  CheckPlacementProblem(buffers, options.alignment);
  search_ = std::make_unique<Search>(buffers, std::move(options));
}

SearchPlanner::~SearchPlanner() = default;

Placement SearchPlanner::Run() { return search_->Run(); }

int64_t SearchPlanner::nodes() const { return search_->nodes(); }

}  // namespace tidepool
