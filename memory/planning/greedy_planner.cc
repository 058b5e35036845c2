#include "tidepool/memory/planning/greedy_planner.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <vector>

#include "tidepool/memory/planning/fit_list.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {
namespace {

// In steps of FitList::work, each about 50 ns. However long, the first order is planned in full.
constexpr int64_t kWorkAllowance = 10000;

// The largest of `live` in any range of sections, in O(log n) after O(n).
class LiveMaximum {
 public:
  explicit LiveMaximum(const std::vector<int64_t>& live)
      : leaves_(std::bit_ceil(live.size() + 1)), tree_(2 * leaves_, 0) {
    std::copy(live.begin(), live.end(), tree_.begin() + leaves_);
    for (size_t i = leaves_ - 1; i > 0; --i) tree_[i] = std::max(tree_[2 * i], tree_[2 * i + 1]);
  }

  int64_t operator()(const SectionItem& item) const {
    int64_t largest = 0;
    size_t first = leaves_ + item.first;
    for (size_t last = leaves_ + item.last; first < last; first /= 2, last /= 2) {
      if (first % 2 == 1) largest = std::max(largest, tree_[first++]);
      if (last % 2 == 1) largest = std::max(largest, tree_[--last]);
    }
    return largest;
  }

 private:
  size_t leaves_;
  std::vector<int64_t> tree_;
};

class GreedyPlanner {
 public:
  GreedyPlanner(absl::Span<const LifetimeBuffer> buffers, const SectionedProblem& problem)
      : buffers_(buffers), problem_(problem), items_(problem.items), order_(items_.size()),
        keys_(items_.size()), offsets_(items_.size()) {}

  // Leaves the best offsets in units in best_offsets().
  void Run() {
    using Fit = FitList::Fit;
    const auto size = [this](int32_t i) { return static_cast<double>(items_[i].size); };
    const auto width = [this](int32_t i) {
      const LifetimeBuffer& buffer = buffers_[items_[i].buffer];
      return static_cast<double>(buffer.upper) - static_cast<double>(buffer.lower);
    };
    const auto start = [this](int32_t i) { return static_cast<double>(items_[i].first); };
    if (Try(size, width, Fit::kFirst)) return;
    // Nested lifetimes (activations wait for their backward step) fit exactly when stacked.
    if (Try([&](int32_t i) { return -start(i); }, width, Fit::kFirst)) return;
    if (Try(width, size, Fit::kFirst)) return;
    if (Try([&](int32_t i) { return size(i) * width(i); }, size, Fit::kFirst)) return;
    const LiveMaximum live_maximum(problem_.live);
    const auto crowd = [&](int32_t i) { return static_cast<double>(live_maximum(items_[i])); };
    if (Try(crowd, [&](int32_t i) { return size(i) * width(i); }, Fit::kFirst)) return;
    if (Try(crowd, width, Fit::kFirst)) return;
    if (Try(crowd, size, Fit::kFirst)) return;
    if (Try([&](int32_t i) { return static_cast<double>(items_[i].last); }, width, Fit::kFirst)) {
      return;
    }
    if (Try(size, width, Fit::kBest)) return;
    if (Try([&](int32_t i) { return -start(i); }, size, Fit::kBest)) return;
    Repair();
  }

  const std::vector<int64_t>& best_offsets() const { return best_offsets_; }

 private:
  // Plans in descending order of `key`, then `tie`, then the caller's order. True if there is
  // nothing more to gain or to spend.
  template <typename Key, typename Tie>
  bool Try(Key key, Tie tie, FitList::Fit fit) {
    for (size_t i = 0; i < items_.size(); ++i) {
      keys_[i] = {key(static_cast<int32_t>(i)), tie(static_cast<int32_t>(i))};
    }
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [this](int32_t a, int32_t b) {
      return keys_[a] != keys_[b] ? keys_[a] > keys_[b] : a < b;
    });
    return Place(fit);
  }

  bool Place(FitList::Fit fit) {
    placed_.Clear();
    int64_t peak = 0;
    size_t num_placed = 0;
    size_t tallest = 0;
    for (const int32_t i : order_) {
      offsets_[i] = placed_.FindOffset(items_[i], fit);
      const int64_t end = offsets_[i] + items_[i].size;
      if (end > peak) {
        peak = end;
        tallest = num_placed;
      }
      if (peak >= best_peak_) break;  // Such a plan is lost already.
      placed_.Insert(items_[i], offsets_[i]);
      ++num_placed;
    }
    spoiler_ = tallest;
    if (peak < best_peak_) {
      best_peak_ = peak;
      best_offsets_ = offsets_;
      best_order_ = order_;
      best_fit_ = fit;
    }
    return best_peak_ == problem_.lower_bound || placed_.work() >= kWorkAllowance;
  }

  // Repeats the best order; the buffer that spoils a repetition is moved halfway to the front for
  // the next.
  void Repair() {
    order_ = best_order_;
    do {
      const auto spoiler = order_.begin() + spoiler_;
      std::rotate(order_.begin() + spoiler_ / 2, spoiler, spoiler + 1);
    } while (!Place(best_fit_));
  }

  const absl::Span<const LifetimeBuffer> buffers_;
  const SectionedProblem& problem_;
  const std::vector<SectionItem>& items_;
  std::vector<int32_t> order_;
  std::vector<std::pair<double, double>> keys_;
  std::vector<int64_t> offsets_;
  size_t spoiler_ = 0;  // position in order_ of the item that reached the peak of the last plan
  FitList placed_;
  int64_t best_peak_ = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> best_offsets_;
  std::vector<int32_t> best_order_;
  FitList::Fit best_fit_ = FitList::Fit::kFirst;
};

}  // namespace

Placement PlanGreedy(absl::Span<const LifetimeBuffer> buffers, int64_t alignment) {
  const SectionedProblem problem = MakeSections(buffers, alignment);
  GreedyPlanner planner(buffers, problem);
  planner.Run();
  return ToPlacement(problem, planner.best_offsets(), buffers.size(), alignment);
}

}  // namespace tidepool
