#include "tidepool/memory/planning/tree_search.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tidepool {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Limits of memory (256 MiB of lists) and stack (a level takes less than 500 bytes).
constexpr int64_t kMostListed = int64_t{1} << 26;
constexpr size_t kMostItems = 4000;
constexpr int kDeepest = 6000;
// Whichever is first: at most 64 nodes, and about a millisecond.
constexpr int64_t kNodesUntilAsked = 64;
constexpr int64_t kWorkUntilAsked = 200000;
constexpr int kSmallestTableBits = 12;
constexpr int kLargestTableBits = 22;

uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

bool TreeSearch::CanSearch(const SectionedProblem& problem) {
  int64_t listed = 0;
  for (const SectionItem& item : problem.items) listed += item.last - item.first;
  return listed <= kMostListed && problem.items.size() <= kMostItems;
}

TreeSearch::TreeSearch(const SectionedProblem& problem)
    : problem_(problem),
      items_(problem.items),
      num_sections_(static_cast<int32_t>(problem.live.size())),
      starts_first_(num_sections_ + 1, 0),
      starts_(items_.size()),
      item_key_(items_.size()),
      list_first_(num_sections_ + 1, 0),
      refuted_(size_t{1} << kSmallestTableBits, 0),
      refuted_bits_(kSmallestTableBits) {
  for (size_t i = 0; i < items_.size(); ++i) {
    item_key_[i] = Mix(0x9e3779b97f4a7c15 * (i + 1));
    ++starts_first_[items_[i].first + 1];
    for (int32_t s = items_[i].first; s < items_[i].last; ++s) ++list_first_[s + 1];
  }
  for (int32_t s = 0; s < num_sections_; ++s) {
    starts_first_[s + 1] += starts_first_[s];
    list_first_[s + 1] += list_first_[s];
  }
  list_.resize(list_first_[num_sections_]);
  std::vector<int32_t> next = starts_first_;
  for (size_t i = 0; i < items_.size(); ++i) {
    starts_[next[items_[i].first]++] = static_cast<int32_t>(i);
  }
}

TreeSearch::Result TreeSearch::Run(int64_t capacity, absl::Span<const int32_t> rank,
                                   int64_t node_budget, absl::FunctionRef<bool()> stop) {
  nodes_ = 0;
  work_ = 0;
  if (problem_.lower_bound > capacity) return Result::kDoesNotFit;
  rank_.assign(rank.begin(), rank.end());
  stop_ = &stop;
  node_budget_ = node_budget;
  depth_ = 0;
  list_count_.assign(num_sections_, 0);
  floor_.assign(num_sections_, 0);
  ceiling_.assign(num_sections_, capacity);
  remaining_ = problem_.live;
  crossing_.assign(num_sections_, 0);
  set_key_.assign(num_sections_, 0);
  is_dirty_.assign(num_sections_, 0);
  lowest_.assign(items_.size(), 0);
  is_placed_.assign(items_.size(), 0);
  offset_.assign(items_.size(), 0);
  dirty_.clear();
  changes_.clear();
  removed_.clear();
  candidates_.clear();
  for (size_t i = 0; i < items_.size(); ++i) {
    for (int32_t s = items_[i].first; s < items_[i].last; ++s) {
      list_[list_first_[s] + list_count_[s]++] = static_cast<int32_t>(i);
      if (s > items_[i].first) ++crossing_[s];
    }
    set_key_[items_[i].first] ^= item_key_[i];
  }
  return SolveRange(0, num_sections_);
}

TreeSearch::Result TreeSearch::SolveRange(int32_t first, int32_t last) {
  // The usual case, a single component, takes no memory.
  int32_t end = first + 1;
  while (end < last && crossing_[end] > 0) ++end;
  if (end == last) return list_count_[first] > 0 ? SolveComponent(first, last) : Result::kFits;
  std::vector<std::pair<int32_t, int32_t>> components;
  for (int32_t begin = first; begin < last; begin = end) {
    end = begin + 1;
    while (end < last && crossing_[end] > 0) ++end;
    if (list_count_[begin] > 0) components.emplace_back(begin, end);
  }
  // Small ones are refuted soonest.
  std::sort(components.begin(), components.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second - a.first, a.first) < std::pair(b.second - b.first, b.first);
  });
  for (const auto& component : components) {
    const Result result = SolveComponent(component.first, component.second);
    if (result != Result::kFits) return result;
  }
  return Result::kFits;
}

TreeSearch::Result TreeSearch::SolveComponent(int32_t first, int32_t last) {
  if (MoveSpanningToCeiling(first, last)) return SolveRange(first, last);
  if (nodes_ >= node_budget_ || depth_ >= kDeepest) return Result::kBudgetSpent;
  if (++nodes_ % kNodesUntilAsked == 0 || work_ >= kWorkUntilAsked) {
    work_ = 0;
    if ((*stop_)()) return Result::kStopped;
  }
  const uint64_t hash = StateHash(first, last);
  if (IsRefuted(hash)) return Result::kDoesNotFit;
  const size_t first_candidate = candidates_.size();
  ++depth_;
  const Result result = BranchOn(ChooseBranching(first, last), first, last);
  --depth_;
  candidates_.resize(first_candidate);
  if (result == Result::kDoesNotFit) RecordRefuted(hash);
  return result;
}

TreeSearch::Result TreeSearch::BranchOn(const Branching& branching, int32_t first, int32_t last) {
  const int32_t section = branching.section;
  const size_t first_candidate = candidates_.size();
  for (int32_t k = 0; k < list_count_[section]; ++k) {
    const int32_t i = list_[list_first_[section] + k];
    if (lowest_[i] == floor_[section]) candidates_.push_back(i);
  }
  const size_t last_candidate = candidates_.size();
  std::sort(candidates_.begin() + first_candidate, candidates_.end(),
            [this](int32_t a, int32_t b) { return rank_[a] < rank_[b]; });
  const Mark mark = CurrentMark();
  for (size_t k = first_candidate; k < last_candidate; ++k) {
    if (HasTwinBefore(first_candidate, k)) continue;
    if (Place(candidates_[k])) {
      const Result result = SolveRange(first, last);
      if (result != Result::kDoesNotFit) return result;
    }
    Undo(mark);
  }
  const Result result = LeaveEmpty(branching, first_candidate, first, last);
  if (result == Result::kDoesNotFit) Undo(mark);
  return result;
}

TreeSearch::Result TreeSearch::LeaveEmpty(const Branching& branching, size_t first_candidate,
                                          int32_t first, int32_t last) {
  const int32_t section = branching.section;
  const int64_t level = floor_[section];
  const int64_t room = ceiling_[section] - level - remaining_[section];
  if (room == 0) return Result::kDoesNotFit;
  // The next buffer of the section rests on the floor elsewhere or, if it is one of the
  // candidates, on a buffer of this valley that is not in this section.
  int64_t next = kNever;
  for (int32_t s = branching.valley_first; s < branching.valley_last; ++s) {
    for (int32_t k = 0; k < list_count_[s]; ++k) {
      const int32_t i = list_[list_first_[s] + k];
      if (items_[i].first > section || section >= items_[i].last) {
        next = std::min(next, lowest_[i] + items_[i].size);
      } else if (lowest_[i] > level) {
        next = std::min(next, lowest_[i]);
      }
    }
  }
  if (next - level > room || !RaiseFloor(section, next) || HoldsRefuted(first_candidate, level)) {
    return Result::kDoesNotFit;
  }
  return SolveRange(first, last);
}

bool TreeSearch::HasTwinBefore(size_t first_candidate, size_t candidate) const {
  const SectionItem& item = items_[candidates_[candidate]];
  for (size_t k = first_candidate; k < candidate; ++k) {
    const SectionItem& other = items_[candidates_[k]];
    if (other.first == item.first && other.last == item.last && other.size == item.size) {
      return true;
    }
  }
  return false;
}

bool TreeSearch::HoldsRefuted(size_t first_candidate, int64_t level) const {
  for (size_t k = first_candidate; k < candidates_.size(); ++k) {
    const SectionItem& item = items_[candidates_[k]];
    const auto lowest_floor =
        std::min_element(floor_.begin() + item.first, floor_.begin() + item.last);
    if (*lowest_floor >= level + item.size) return true;
  }
  return false;
}

bool TreeSearch::MoveSpanningToCeiling(int32_t first, int32_t last) {
  bool moved = false;
  // From the back: Remove puts the last in the place of the removed.
  for (int32_t k = list_count_[first] - 1; k >= 0; --k) {
    const int32_t i = list_[list_first_[first] + k];
    if (items_[i].first != first || items_[i].last != last) continue;
    offset_[i] = ceiling_[first] - items_[i].size;
    for (int32_t s = first; s < last; ++s) Set(ceiling_[s], offset_[i]);
    Remove(i);
    moved = true;
  }
  return moved;
}

TreeSearch::Branching TreeSearch::ChooseBranching(int32_t first, int32_t last) const {
  Branching best{-1, 0, 0};
  std::pair<int64_t, int64_t> best_cost{kNever, kNever};
  for (int32_t begin = first, end; begin < last; begin = end) {
    end = begin + 1;
    const int64_t level = floor_[begin];
    while (end < last && floor_[end] == level) ++end;
    const bool is_valley =
        (begin == first || floor_[begin - 1] > level) && (end == last || floor_[end] > level);
    if (!is_valley) continue;
    for (int32_t s = begin; s < end; ++s) {
      const int64_t room = ceiling_[s] - level - remaining_[s];
      int64_t answers = room > 0;
      const int32_t* list = &list_[list_first_[s]];
      for (int32_t k = 0; k < list_count_[s]; ++k) answers += lowest_[list[k]] == level;
      const std::pair<int64_t, int64_t> cost{answers, room};
      if (cost < best_cost) {
        best = {s, begin, end};
        best_cost = cost;
      }
    }
  }
  return best;
}

bool TreeSearch::Place(int32_t item) {
  const SectionItem& placed = items_[item];
  const int64_t top = lowest_[item] + placed.size;
  offset_[item] = lowest_[item];
  Remove(item);
  for (int32_t s = placed.first; s < placed.last; ++s) {
    Set(floor_[s], top);
    if (!is_dirty_[s]) dirty_.push_back(s);
    is_dirty_[s] = 1;
  }
  // All that share a section with it: those of its first, and those that start in its others.
  const int32_t* list = &list_[list_first_[placed.first]];
  for (int32_t k = 0; k < list_count_[placed.first]; ++k) RaiseLowest(list[k], top);
  const int32_t starts_end = starts_first_[placed.last];
  for (int32_t k = starts_first_[placed.first + 1]; k < starts_end; ++k) {
    if (!is_placed_[starts_[k]]) RaiseLowest(starts_[k], top);
  }
  return Propagate();
}

bool TreeSearch::RaiseFloor(int32_t section, int64_t level) {
  Set(floor_[section], level);
  const int32_t* list = &list_[list_first_[section]];
  for (int32_t k = 0; k < list_count_[section]; ++k) RaiseLowest(list[k], level);
  return Propagate();
}

void TreeSearch::RaiseLowest(int32_t item, int64_t level) {
  if (lowest_[item] >= level) return;
  Set(lowest_[item], level);
  for (int32_t s = items_[item].first; s < items_[item].last; ++s) {
    if (!is_dirty_[s]) dirty_.push_back(s);
    is_dirty_[s] = 1;
  }
}

bool TreeSearch::Propagate() {
  bool fits = true;
  for (const int32_t s : dirty_) {
    is_dirty_[s] = 0;
    fits = fits && PropagateSection(s);
  }
  dirty_.clear();
  return fits;
}

bool TreeSearch::PropagateSection(int32_t section) {
  const int32_t count = list_count_[section];
  work_ += count;
  if (count == 0) return floor_[section] <= ceiling_[section];
  // Nearly sorted from the last time.
  int32_t* list = &list_[list_first_[section]];
  for (int32_t k = 1; k < count; ++k) {
    const int32_t item = list[k];
    int32_t at = k;
    for (; at > 0 && lowest_[list[at - 1]] > lowest_[item]; --at) list[at] = list[at - 1];
    list[at] = item;
  }
  int64_t end = 0;
  for (int32_t k = 0; k < count; ++k) {
    end = std::max(end, lowest_[list[k]]) + items_[list[k]].size;
  }
  if (end > ceiling_[section]) return false;
  // Nothing will lie lower; no lowest offset changes by this.
  if (lowest_[list[0]] > floor_[section]) Set(floor_[section], lowest_[list[0]]);
  return true;
}

void TreeSearch::Set(int64_t& place, int64_t value) {
  changes_.push_back({&place, place});
  place = value;
}

void TreeSearch::Remove(int32_t item) {
  const SectionItem& removed = items_[item];
  is_placed_[item] = 1;
  removed_.push_back(item);
  set_key_[removed.first] ^= item_key_[item];
  for (int32_t s = removed.first; s < removed.last; ++s) {
    remaining_[s] -= removed.size;
    if (s > removed.first) --crossing_[s];
    int32_t* list = &list_[list_first_[s]];
    const int32_t last = --list_count_[s];
    int32_t at = last;
    while (list[at] != item) --at;
    std::swap(list[at], list[last]);
  }
}

void TreeSearch::Undo(Mark mark) {
  for (; changes_.size() > mark.changes; changes_.pop_back()) {
    *changes_.back().place = changes_.back().before;
  }
  for (; removed_.size() > mark.removed; removed_.pop_back()) {
    const int32_t item = removed_.back();
    is_placed_[item] = 0;
    set_key_[items_[item].first] ^= item_key_[item];
    for (int32_t s = items_[item].first; s < items_[item].last; ++s) {
      remaining_[s] += items_[item].size;
      if (s > items_[item].first) ++crossing_[s];
      ++list_count_[s];  // It is where Remove put it: behind those that are to be placed.
    }
  }
}

uint64_t TreeSearch::StateHash(int32_t first, int32_t last) const {
  uint64_t hash = 0x9e3779b97f4a7c15 * static_cast<uint64_t>(first + 1);
  for (int32_t s = first; s < last; ++s) {
    hash = (hash ^ (set_key_[s] + static_cast<uint64_t>(ceiling_[s] - floor_[s]))) *
           0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  return hash | 1;
}

bool TreeSearch::IsRefuted(uint64_t hash) const {
  return refuted_[hash >> (64 - refuted_bits_)] == hash;
}

void TreeSearch::RecordRefuted(uint64_t hash) {
  if (++num_refuted_ > static_cast<int64_t>(refuted_.size() / 2) &&
      refuted_bits_ < kLargestTableBits) {
    ++refuted_bits_;
    std::vector<uint64_t> larger(refuted_.size() * 2, 0);
    for (const uint64_t old : refuted_) larger[old >> (64 - refuted_bits_)] = old;
    refuted_ = std::move(larger);
  }
  refuted_[hash >> (64 - refuted_bits_)] = hash;
}

}  // namespace tidepool
