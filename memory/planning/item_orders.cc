#include "tidepool/memory/planning/item_orders.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "tidepool/memory/mapped_vector.h"

namespace tidepool {
namespace {

// The largest element of any range of a list, in O(log n) after O(n).
class RangeMaximum {
 public:
  explicit RangeMaximum(const MappedVector<int64_t>& values)
      : leaves_(std::bit_ceil(values.size() + 1)), tree_(2 * leaves_, 0) {
    std::copy(values.begin(), values.end(), tree_.begin() + leaves_);
    for (size_t i = leaves_ - 1; i > 0; --i) tree_[i] = std::max(tree_[2 * i], tree_[2 * i + 1]);
  }

  int64_t operator()(int32_t begin, int32_t end) const {
    int64_t largest = 0;
    size_t first = leaves_ + begin;
    for (size_t last = leaves_ + end; first < last; first /= 2, last /= 2) {
      if (first % 2 == 1) largest = std::max(largest, tree_[first++]);
      if (last % 2 == 1) largest = std::max(largest, tree_[--last]);
    }
    return largest;
  }

 private:
  size_t leaves_;
  MappedVector<int64_t> tree_;
};

// In [0, 1), the same with every standard library.
double Uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

}  // namespace

ItemFeatures::ItemFeatures(absl::Span<const LifetimeBuffer> buffers,
                           const SectionedProblem& problem) {
  const RangeMaximum largest_live(problem.live);
  for (MappedVector<double>* feature : {&size, &width, &area, &crowd, &early, &late}) {
    feature->reserve(problem.items.size());
  }
  for (const SectionItem& item : problem.items) {
    const LifetimeBuffer& buffer = buffers[item.buffer];
    size.push_back(static_cast<double>(item.size));
    width.push_back(static_cast<double>(buffer.upper) - static_cast<double>(buffer.lower));
    area.push_back(size.back() * width.back());
    crowd.push_back(static_cast<double>(largest_live(item.first, item.last)));
    early.push_back(-item.first);
    late.push_back(item.last);
  }
}

void SortItems(std::initializer_list<const MappedVector<double>*> features,
               MappedVector<int32_t>& order) {
  order.resize((*features.begin())->size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    for (const MappedVector<double>* feature : features) {
      if ((*feature)[a] != (*feature)[b]) return (*feature)[a] > (*feature)[b];
    }
    return a < b;
  });
}

void SortItemsAtRandom(const ItemFeatures& features, std::mt19937_64& random,
                       MappedVector<int32_t>& order) {
  const double balance = Uniform(random);
  MappedVector<double> key(features.size.size());
  for (size_t i = 0; i < key.size(); ++i) {
    key[i] = balance * std::log(features.size[i]) + (1 - balance) * std::log(features.width[i]) +
             0.5 * Uniform(random);
  }
  SortItems({&key}, order);
}

}  // namespace tidepool
