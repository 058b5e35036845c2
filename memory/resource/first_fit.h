// The first of numbered places that has at least so much, in O(log places).
//
// A tree in an array: each node is the most of its two children, the leaves are the places. Threads:
// one at a time.
#ifndef TIDEPOOL_MEMORY_RESOURCE_FIRST_FIT_H_
#define TIDEPOOL_MEMORY_RESOURCE_FIRST_FIT_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

namespace tidepool {

class FirstFit {
 public:
  // Room for places 0 to `places` - 1; new ones have nothing. Throws std::bad_alloc, nothing
  // changed then.
  void Reserve(size_t places) {
    if (places <= leaves_) return;
    FirstFit larger;
    larger.leaves_ = std::bit_ceil(places);
    larger.most_.resize(2 * larger.leaves_);
    for (size_t at = 0; at < leaves_; ++at) larger.Set(at, most_[leaves_ + at]);
    most_.swap(larger.most_);
    leaves_ = larger.leaves_;
  }

  size_t operator[](size_t at) const { return most_[leaves_ + at]; }
  void Set(size_t at, size_t has) noexcept {
    size_t node = leaves_ + at;
    most_[node] = has;
    while (node > 1) {
      const size_t most = std::max(most_[node], most_[node ^ 1]);
      node /= 2;
      if (most_[node] == most) return;
      most_[node] = most;
    }
  }
  bool Has(size_t least) const { return leaves_ > 0 && most_[1] >= least; }
  // There is one.
  size_t First(size_t least) const {
    size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      if (most_[node] < least) ++node;
    }
    return node - leaves_;
  }

 private:
  size_t leaves_ = 0;         // a power of two
  std::vector<size_t> most_;  // [1]: of all; below [n]: [2n] and [2n + 1]
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_FIRST_FIT_H_
