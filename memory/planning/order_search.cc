#include "tidepool/memory/planning/order_search.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "tidepool/memory/planning/greedy_planner.h"

namespace tidepool {
namespace {

// A walk that has not improved on the best for this many orders goes back to it.
constexpr int64_t kOrdersBeforeReturn = 2000;
// One change in this many is kept although it raises the peak a little.
constexpr uint64_t kOneInWorseKept = 64;

// xorshift64* (Vigna 2016): orders must not depend on a standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2685821657736338717u + 1) {}
  uint64_t Below(uint64_t n) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return (state_ * 2685821657736338717u >> 11) % n;
  }

 private:
  uint64_t state_;
};

class Search {
 public:
  Search(absl::Span<const LifetimeBuffer> buffers, int64_t alignment)
      : count_(static_cast<int>(buffers.size())),
        sizes_(buffers.size()),
        offsets_(buffers.size()),
        position_(buffers.size()),
        together_(buffers.size()) {
    std::vector<int> by_lower(count_);
    std::iota(by_lower.begin(), by_lower.end(), 0);
    std::sort(by_lower.begin(), by_lower.end(),
              [&](int a, int b) { return buffers[a].lower < buffers[b].lower; });
    std::vector<int> alive;
    for (int i : by_lower) {
      sizes_[i] = AlignedSize(buffers[i].size, alignment);
      std::erase_if(alive, [&](int j) { return buffers[j].upper <= buffers[i].lower; });
      for (int j : alive) {
        together_[i].push_back(j);
        together_[j].push_back(i);
      }
      alive.push_back(i);
    }
  }

  // Places all buffers in `order`; returns the peak, or `limit` as soon as it is reached.
  int64_t Place(const std::vector<int>& order, int64_t limit) {
    for (int p = 0; p < count_; ++p) position_[order[p]] = p;
    int64_t peak = 0;
    for (int p = 0; p < count_; ++p) {
      const int i = order[p];
      taken_.clear();
      for (int j : together_[i]) {
        if (position_[j] < p && sizes_[j] > 0) taken_.push_back({offsets_[j], offsets_[j] + sizes_[j]});
      }
      std::sort(taken_.begin(), taken_.end());
      int64_t offset = 0;
      for (const auto& [begin, end] : taken_) {
        if (begin - offset >= sizes_[i]) break;
        offset = std::max(offset, end);
      }
      offsets_[i] = sizes_[i] > 0 ? offset : 0;
      if (offsets_[i] + sizes_[i] > peak) {
        peak = offsets_[i] + sizes_[i];
        highest_ = i;
        if (peak >= limit) return limit;
      }
    }
    return peak;
  }

  // Of the last order: who reaches the peak, and who was placed with it before.
  int highest() const { return highest_; }
  const std::vector<int>& together(int i) const { return together_[i]; }
  const std::vector<int64_t>& offsets() const { return offsets_; }
  int position(int i) const { return position_[i]; }

 private:
  int count_;
  std::vector<int64_t> sizes_, offsets_;
  std::vector<int> position_;
  std::vector<std::vector<int>> together_;
  std::vector<std::pair<int64_t, int64_t>> taken_;
  int highest_ = 0;
};

}  // namespace

Placement SearchOrders(absl::Span<const LifetimeBuffer> buffers, const OrderSearchOptions& options,
                       absl::FunctionRef<bool()> stop) {
  Placement best = PlanGreedy(buffers, options.alignment);
  const int64_t goal = std::max(best.lower_bound, options.capacity);
  if (best.peak <= goal || buffers.size() < 2) return best;
  Search search(buffers, options.alignment);
  // The greedy placement's own order: from the bottom up.
  std::vector<int> best_order(buffers.size());
  std::iota(best_order.begin(), best_order.end(), 0);
  std::stable_sort(best_order.begin(), best_order.end(),
                   [&](int a, int b) { return best.offsets[a] < best.offsets[b]; });
  Random random(options.seed);
  std::vector<int> order = best_order;
  int64_t peak = search.Place(order, INT64_MAX);
  int64_t since_best = 0;
  for (int64_t tried = 0; options.max_orders == 0 || tried < options.max_orders; ++tried) {
    if (stop()) break;
    if (++since_best > kOrdersBeforeReturn) {
      order = best_order;
      peak = search.Place(order, INT64_MAX);
      since_best = 0;
    }
    const int culprit = search.highest();
    const std::vector<int>& neighbours = search.together(culprit);
    const int moved = neighbours.empty() || random.Below(2) == 0
                          ? culprit
                          : neighbours[random.Below(neighbours.size())];
    const int from = search.position(moved);
    const int to = static_cast<int>(random.Below(order.size()));
    std::vector<int> changed = order;
    changed.erase(changed.begin() + from);
    changed.insert(changed.begin() + to, moved);
    const bool keep_worse = random.Below(kOneInWorseKept) == 0;
    const int64_t limit = keep_worse ? INT64_MAX : peak + 1;
    const int64_t changed_peak = search.Place(changed, limit);
    if (changed_peak >= limit) {
      search.Place(order, INT64_MAX);  // positions and peak of the order that stays
      continue;
    }
    order = std::move(changed);
    peak = changed_peak;
    if (peak < best.peak) {
      best.peak = peak;
      best.offsets = search.offsets();
      best_order = order;
      since_best = 0;
      if (best.peak <= goal) break;
    }
  }
  return best;
}

}  // namespace tidepool
