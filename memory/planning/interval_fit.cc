#include "tidepool/memory/planning/interval_fit.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "tidepool/memory/mapped_vector.h"

namespace tidepool {
namespace {

// How many pairs of items are alive together.
int64_t CountConflicts(const SectionedProblem& problem) {
  MappedVector<int64_t> begun(problem.live.size() + 1), ended(problem.live.size() + 1);
  for (const SectionItem& item : problem.items) {
    ++begun[item.first];
    ++ended[item.last];
  }
  // Those that begin together, each with each; and with all that are alive already.
  int64_t pairs = 0, alive = 0;
  for (size_t section = 0; section < begun.size(); ++section) {
    alive -= ended[section];
    pairs += begun[section] * alive + begun[section] * (begun[section] - 1) / 2;
    alive += begun[section];
  }
  return pairs;
}

// As measured: an item looks at its conflicts among those placed before, sorts them, and passes others by.
int64_t WorkByTime(const SectionedProblem& problem) {
  return CountConflicts(problem) * 5 / 8 + 2 * static_cast<int64_t>(problem.items.size());
}

// Half of the blocks, each half full or more, at each item.
int64_t WorkByOffset(const SectionedProblem& problem) {
  const auto count = static_cast<int64_t>(problem.items.size());
  return count * (count / 96 + 1);
}

}  // namespace

int64_t WorkOfOrder(const SectionedProblem& problem) {
  return std::min(WorkByTime(problem), WorkByOffset(problem));
}

bool IntervalFit::IsFasterFor(const SectionedProblem& problem) {
  return problem.has_many_items() && WorkByTime(problem) < WorkByOffset(problem);
}

IntervalFit::IntervalFit(const SectionedProblem& problem)
    : leaves_(static_cast<int32_t>(
          std::bit_ceil(static_cast<uint64_t>(problem.live.size() / kLeafSections + 1)))),
      nodes_(2 * static_cast<size_t>(leaves_)) {}

void IntervalFit::Clear() {
  for (int32_t used : used_) {
    nodes_[used].entries.clear();
    nodes_[used].first = INT32_MAX;
    nodes_[used].last = -1;
    for (int32_t at = used; at > 0; at /= 2) {
      nodes_[at].first_below = INT32_MAX;
      nodes_[at].last_below = -1;
    }
  }
  used_.clear();
}

void IntervalFit::Insert(const SectionItem& item, int64_t offset) {
  int32_t node = 1;
  int64_t begin = 0, size = leaves_ * kLeafSections;
  for (;;) {
    Node& at = nodes_[node];
    at.first_below = std::min(at.first_below, item.first);
    at.last_below = std::max(at.last_below, item.last);
    const int64_t middle = begin + size / 2;
    ++work_;
    if (node >= leaves_ || (item.first <= middle && item.last > middle)) break;
    node *= 2;
    size /= 2;
    if (item.first > middle) {
      ++node;
      begin = middle;
    }
  }
  Node& at = nodes_[node];
  if (at.entries.empty()) used_.push_back(node);
  at.entries.push_back({item.first, item.last, offset, offset + item.size});
  at.first = std::min(at.first, item.first);
  at.last = std::max(at.last, item.last);
}

void IntervalFit::Collect(const SectionItem& item) {
  conflicts_.clear();
  int32_t stack[64];
  int depth = 0;
  stack[depth++] = 1;
  while (depth > 0) {
    const int32_t node = stack[--depth];
    const Node& at = nodes_[node];
    ++work_;
    if (at.last_below <= item.first || at.first_below >= item.last) continue;
    if (at.last > item.first && at.first < item.last) {
      work_ += static_cast<int64_t>(at.entries.size());
      for (const Entry& entry : at.entries) {
        if (entry.last > item.first && entry.first < item.last) {
          conflicts_.emplace_back(entry.offset, entry.end);
        }
      }
    }
    if (node < leaves_) {
      stack[depth++] = 2 * node;
      stack[depth++] = 2 * node + 1;
    }
  }
}

int64_t IntervalFit::FindOffset(const SectionItem& item, FitList::Fit fit) {
  Collect(item);
  work_ += 2 * static_cast<int64_t>(conflicts_.size());
  std::sort(conflicts_.begin(), conflicts_.end());
  int64_t floor = 0;  // The end of all conflicts so far.
  int64_t best_gap = std::numeric_limits<int64_t>::max();
  int64_t best_offset = -1;
  for (const auto& [offset, end] : conflicts_) {
    const int64_t gap = offset - floor;
    if (gap >= item.size) {
      if (fit == FitList::Fit::kFirst) return floor;
      if (gap < best_gap) {
        best_gap = gap;
        best_offset = floor;
      }
    }
    floor = std::max(floor, end);
  }
  return best_offset >= 0 ? best_offset : floor;
}

}  // namespace tidepool
