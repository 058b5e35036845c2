#include "tidepool/memory/planning/online_planner.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "tidepool/memory/mapped_vector.h"

namespace tidepool {
namespace {

// The free ranges of an arena without an end.
class Gaps {
 public:
  // The tightest that holds it; else at the top, from the last free range on if that touches the top.
  int64_t Take(int64_t size) {
    const auto tightest = by_size_.lower_bound({size, 0});
    if (tightest != by_size_.end()) {
      const auto [found, offset] = *tightest;
      Remove(offset, found);
      if (found > size) Add(offset + size, found - size);
      return offset;
    }
    int64_t offset = top_;
    if (!by_offset_.empty()) {
      const auto [last, length] = *by_offset_.rbegin();
      if (last + length == top_) {
        Remove(last, length);
        offset = last;
      }
    }
    top_ = offset + size;
    return offset;
  }
  // A range that is free or above the top.
  void TakeAt(int64_t offset, int64_t size) {
    if (offset + size > top_) {
      Give(top_, offset + size - top_);
      top_ = offset + size;
    }
    const auto at = std::prev(by_offset_.upper_bound(offset));
    const auto [begin, length] = *at;
    Remove(begin, length);
    if (begin < offset) Add(begin, offset - begin);
    if (begin + length > offset + size) Add(offset + size, begin + length - offset - size);
  }
  void Give(int64_t offset, int64_t size) {
    const auto after = by_offset_.lower_bound(offset);
    int64_t end = offset + size;
    if (after != by_offset_.begin()) {
      const auto [begin, length] = *std::prev(after);
      if (begin + length == offset) {
        Remove(begin, length);
        offset = begin;
      }
    }
    if (const auto behind = by_offset_.find(end); behind != by_offset_.end()) {
      const int64_t length = behind->second;
      Remove(end, length);
      end += length;
    }
    Add(offset, end - offset);
  }

 private:
  void Add(int64_t offset, int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void Remove(int64_t offset, int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }

  std::map<int64_t, int64_t> by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t top_ = 0;
};

// A range that is taken from the beginning until a section.
struct Reserved {
  int64_t offset;
  int64_t end;
  int32_t last;
};

// Of items that have their place. Ranges that meet are one, as they may hold one another's bytes at
// other times.
MappedVector<Reserved> Reservations(const MappedVector<SectionItem>& items,
                                    absl::Span<const int64_t> given) {
  MappedVector<Reserved> all;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == kNoOffset) continue;
    all.push_back({given[i], given[i] + items[i].size, items[i].last});
  }
  std::sort(all.begin(), all.end(),
            [](const Reserved& a, const Reserved& b) { return a.offset < b.offset; });
  MappedVector<Reserved> apart;
  for (const Reserved& next : all) {
    if (apart.empty() || next.offset >= apart.back().end) {
      apart.push_back(next);
    } else {
      apart.back().end = std::max(apart.back().end, next.end);
      apart.back().last = std::max(apart.back().last, next.last);
    }
  }
  return apart;
}

ItemOffsets PlanInOrder(const MappedVector<SectionItem>& items, int32_t num_sections,
                        absl::Span<const int64_t> given) {
  // By their first section, the largest first; and by their last.
  MappedVector<int32_t> begins(items.size()), ends(items.size());
  std::iota(begins.begin(), begins.end(), 0);
  ends = begins;
  std::sort(begins.begin(), begins.end(), [&](int32_t a, int32_t b) {
    if (items[a].first != items[b].first) return items[a].first < items[b].first;
    return items[a].size != items[b].size ? items[a].size > items[b].size : a < b;
  });
  std::sort(ends.begin(), ends.end(), [&](int32_t a, int32_t b) {
    return items[a].last != items[b].last ? items[a].last < items[b].last : a < b;
  });
  const auto is_given = [&](int32_t i) { return !given.empty() && given[i] != kNoOffset; };

  ItemOffsets plan{MappedVector<int64_t>(items.size()), 0};
  Gaps gaps;
  MappedVector<Reserved> reserved = Reservations(items, given);
  for (const Reserved& range : reserved) gaps.TakeAt(range.offset, range.end - range.offset);
  std::sort(reserved.begin(), reserved.end(),
            [](const Reserved& a, const Reserved& b) { return a.last < b.last; });
  auto begin = begins.begin();
  auto end = ends.begin();
  auto reservation = reserved.begin();
  for (int32_t section = 0; section < num_sections; ++section) {
    for (; end != ends.end() && items[*end].last <= section; ++end) {
      if (!is_given(*end)) gaps.Give(plan.offsets[*end], items[*end].size);
    }
    for (; reservation != reserved.end() && reservation->last <= section; ++reservation) {
      gaps.Give(reservation->offset, reservation->end - reservation->offset);
    }
    for (; begin != begins.end() && items[*begin].first == section; ++begin) {
      const int32_t i = *begin;
      plan.offsets[i] = is_given(i) ? given[i] : gaps.Take(items[i].size);
      plan.peak = std::max(plan.peak, plan.offsets[i] + items[i].size);
    }
  }
  return plan;
}

}  // namespace

ItemOffsets PlanOnline(const SectionedProblem& problem, absl::Span<const int64_t> given) {
  const auto num_sections = static_cast<int32_t>(problem.live.size());
  ItemOffsets plan = PlanInOrder(problem.items, num_sections, given);
  if (!given.empty() || plan.peak == problem.lower_bound) return plan;
  MappedVector<SectionItem> reversed = problem.items;
  for (SectionItem& item : reversed) {
    item.first = num_sections - std::exchange(item.last, num_sections - item.first);
  }
  ItemOffsets backward = PlanInOrder(reversed, num_sections, {});
  return backward.peak < plan.peak ? backward : plan;
}

}  // namespace tidepool
