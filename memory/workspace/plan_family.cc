#include "tidepool/memory/workspace/plan_family.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>

#include "tidepool/memory/mapped_vector.h"

namespace tidepool {
namespace {

using Requests = absl::Span<const LifetimeBuffer>;

// How many requests both begin with.
size_t Common(Requests a, Requests b) {
  const size_t shorter = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < shorter && a[i].size == b[i].size) ++i;
  return i;
}

class Family {
 public:
  Family(absl::Span<const Requests> members, size_t alignment) : alignment_(alignment) {
    order_.resize(members.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return std::lexicographical_compare(
          members[a].begin(), members[a].end(), members[b].begin(), members[b].end(),
          [](const LifetimeBuffer& x, const LifetimeBuffer& y) { return x.size < y.size; });
    });
    for (size_t i = 0; i < order_.size(); ++i) {
      const Requests member = members[order_[i]];
      common_.push_back(i == 0 ? 0 : Common(members[order_[i - 1]], member));
      joined_.emplace_back(member.begin(), member.end());
    }
    Join(members);
  }

  // As the members were given.
  std::vector<PlacedRequests> InOrder(std::vector<PlacedRequests> sorted) const {
    std::vector<PlacedRequests> placed(sorted.size());
    for (size_t i = 0; i < sorted.size(); ++i) placed[order_[i]] = std::move(sorted[i]);
    return placed;
  }

  std::vector<PlacedRequests> LargestFirst() const {
    std::vector<std::pair<int64_t, size_t>> by_bound;
    for (size_t i = 0; i < joined_.size(); ++i) {
      by_bound.push_back({-LiveLowerBound(joined_[i], static_cast<int64_t>(alignment_)), i});
    }
    std::sort(by_bound.begin(), by_bound.end());
    std::vector<PlacedRequests> placed(joined_.size());
    for (const auto& [bound, i] : by_bound) {
      // Whoever was placed before has the places of what both begin with: the one with most in common has all.
      size_t nearest = i, most = 0;
      const auto look = [&](size_t other, size_t common) {
        if (!placed[other].offsets.empty() && common > most) nearest = other, most = common;
      };
      for (size_t j = i, common = SIZE_MAX; j > 0; --j) {
        common = std::min(common, common_[j]);
        look(j - 1, common);
      }
      for (size_t j = i + 1, common = SIZE_MAX; j < joined_.size(); ++j) {
        common = std::min(common, common_[j]);
        look(j, common);
      }
      placed[i] = Place(joined_[i], placed[nearest].offsets, most);
    }
    return placed;
  }

  std::vector<PlacedRequests> CommonFirst() const {
    std::vector<PlacedRequests> placed(joined_.size());
    PlaceBranch(0, joined_.size(), {}, &placed);
    return placed;
  }

 private:
  // A request of a common beginning lives as long as in any of those that have it, until they part.
  void Join(absl::Span<const Requests> members) {
    const auto join = [&](size_t i, size_t other, size_t common) {
      const Requests lives = members[order_[other]];
      for (size_t r = 0; r < common; ++r) {
        int64_t& upper = joined_[i][r].upper;
        upper = std::max(upper, std::min(lives[r].upper, static_cast<int64_t>(common)));
      }
    };
    for (size_t i = 0; i < joined_.size(); ++i) {
      for (size_t j = i + 1, common = SIZE_MAX; j < joined_.size(); ++j) {
        common = std::min(common, common_[j]);
        if (common == 0) break;
        join(i, j, common);
        join(j, i, common);
      }
    }
  }

  // The first `count` have their offsets already.
  PlacedRequests Place(Requests requests, const std::vector<int64_t>& offsets, size_t count) const {
    std::vector<PinnedBuffer> pins;
    pins.reserve(count);
    for (size_t r = 0; r < count; ++r) pins.push_back({r, offsets[r]});
    return PlaceRequests(requests, pins, alignment_);
  }

  // Those from `begin` to `end` have the requests before which `offsets` ends in common.
  void PlaceBranch(size_t begin, size_t end, std::vector<int64_t> offsets,
                   std::vector<PlacedRequests>* placed) const {
    if (end - begin == 1) {
      (*placed)[begin] = Place(joined_[begin], offsets, offsets.size());
      return;
    }
    const size_t common =
        *std::min_element(common_.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                          common_.begin() + static_cast<std::ptrdiff_t>(end));
    if (common > offsets.size()) {
      MappedVector<LifetimeBuffer> trunk(
          joined_[begin].begin(), joined_[begin].begin() + static_cast<std::ptrdiff_t>(common));
      for (LifetimeBuffer& request : trunk) {
        request.upper = std::min(request.upper, static_cast<int64_t>(common));
      }
      offsets = Place(trunk, offsets, offsets.size()).offsets;
    }
    for (size_t branch = begin; branch < end;) {
      size_t next = branch + 1;
      while (next < end && common_[next] > common) ++next;
      PlaceBranch(branch, next, offsets, placed);
      branch = next;
    }
  }

  const size_t alignment_;
  std::vector<size_t> order_;   // members by their sizes, as words in a dictionary
  std::vector<size_t> common_;  // in that order: with the one before
  std::vector<MappedVector<LifetimeBuffer>> joined_;
};

}  // namespace

std::vector<PlacedRequests> PlaceFamily(absl::Span<const Requests> members, size_t alignment,
                                        size_t favoured) {
  const Family family(members, alignment);
  std::vector<PlacedRequests> one = family.InOrder(family.LargestFirst());
  std::vector<PlacedRequests> other = family.InOrder(family.CommonFirst());
  const auto cost = [&](const std::vector<PlacedRequests>& placed) {
    size_t largest = 0, sum = 0;
    for (const PlacedRequests& member : placed) {
      largest = std::max(largest, member.peak_bytes);
      sum += member.peak_bytes;
    }
    const size_t first = favoured < placed.size() ? placed[favoured].peak_bytes : largest;
    return std::tuple(first, largest, sum);
  };
  return cost(one) <= cost(other) ? one : other;
}

}  // namespace tidepool
