#include "tidepool/memory/planning/pinned_planner.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/planning/fit_list.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/interval_fit.h"
#include "tidepool/memory/planning/online_planner.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {
namespace {

// So that no sum of it and sizes overflows.
constexpr int64_t kOffsetLimit = int64_t{1} << 62;

// By item in units of the alignment; kNoOffset for those without a place.
MappedVector<int64_t> PinnedOffsets(const SectionedProblem& problem,
                                    absl::Span<const PinnedBuffer> pinned, size_t num_buffers,
                                    int64_t alignment) {
  MappedVector<int64_t> by_buffer(num_buffers, kNoOffset);
  for (const PinnedBuffer& pin : pinned) {
    if (pin.buffer >= num_buffers || pin.offset < 0 || pin.offset >= kOffsetLimit ||
        pin.offset % alignment != 0) {
      ThrowInvalidArgument(absl::StrCat("placement: buffer ", pin.buffer, " of ", num_buffers,
                                        " pinned at offset ", pin.offset,
                                        ", expected a multiple of ", alignment, " below 2^62"));
    }
    if (by_buffer[pin.buffer] != kNoOffset) {
      ThrowInvalidArgument(absl::StrCat("placement: buffer ", pin.buffer,
                                        " is pinned twice, at offsets ",
                                        by_buffer[pin.buffer] * alignment, " and ", pin.offset));
    }
    by_buffer[pin.buffer] = pin.offset / alignment;
  }
  MappedVector<int64_t> by_item;
  by_item.reserve(problem.items.size());
  for (const SectionItem& item : problem.items) by_item.push_back(by_buffer[item.buffer]);
  return by_item;
}

// In the order of their begins, each against those that are alive then, by offset: as long as they are
// apart, only the nearest can overlap it.
void CheckPinsAreApart(const MappedVector<SectionItem>& items, const MappedVector<int64_t>& given,
                       absl::Span<const int32_t> fixed) {
  MappedVector<int32_t> begins(fixed.begin(), fixed.end());
  MappedVector<int32_t> ends = begins;
  std::sort(begins.begin(), begins.end(), [&](int32_t a, int32_t b) {
    return std::pair(items[a].first, a) < std::pair(items[b].first, b);
  });
  std::sort(ends.begin(), ends.end(), [&](int32_t a, int32_t b) {
    return std::pair(items[a].last, a) < std::pair(items[b].last, b);
  });
  std::map<int64_t, int32_t> alive;
  auto end = ends.begin();
  for (const int32_t i : begins) {
    for (; items[*end].last <= items[i].first; ++end) alive.erase(given[*end]);
    const auto above = alive.lower_bound(given[i]);
    int32_t other = -1;
    if (above != alive.end() && above->first < given[i] + items[i].size) other = above->second;
    if (above != alive.begin()) {
      const int32_t below = std::prev(above)->second;
      if (given[below] + items[below].size > given[i]) other = below;
    }
    if (other >= 0) {
      const auto [a, b] = std::minmax(items[i].buffer, items[other].buffer);
      ThrowInvalidArgument(absl::StrCat("placement: pinned buffers ", a, " and ", b,
                                        " overlap while both are alive"));
    }
    alive.emplace(given[i], i);
  }
}

// First fit of what is not given, in the order of a sort key.
template <typename Placed>
class Around {
 public:
  Around(const MappedVector<SectionItem>& items, const MappedVector<int64_t>& given, Placed placed)
      : items_(items), given_(given), placed_(std::move(placed)) {}

  // False when the work of all plans so far is more than `limit`.
  bool Plan(const MappedVector<int32_t>& order, int64_t limit, ItemOffsets* plan) {
    placed_.Clear();
    plan->offsets.resize(items_.size());
    plan->peak = 0;
    for (const int32_t i : order) {
      if (placed_.work() >= limit) return false;
      int64_t& offset = plan->offsets[i];
      offset =
          given_[i] != kNoOffset ? given_[i] : placed_.FindOffset(items_[i], FitList::Fit::kFirst);
      placed_.Insert(items_[i], offset);
      plan->peak = std::max(plan->peak, offset + items_[i].size);
    }
    return true;
  }

 private:
  const MappedVector<SectionItem>& items_;
  const MappedVector<int64_t>& given_;
  Placed placed_;
};

// By size, by size times lifetime, and latest first, which stacks nested lifetimes; what is given
// before all others.
void SortForAttempt(int attempt, const MappedVector<SectionItem>& items,
                    MappedVector<int32_t>::iterator begin, MappedVector<int32_t>::iterator end) {
  std::sort(begin, end, [&](int32_t a, int32_t b) {
    auto key = [&](int32_t i) {
      const double size = static_cast<double>(items[i].size);
      const double width = items[i].last - items[i].first;
      if (attempt == 0) return std::tuple(-size, -width, i);
      if (attempt == 1) return std::tuple(-size * width, -size, i);
      return std::tuple(static_cast<double>(items[i].first), -width, i);
    };
    return key(a) < key(b);
  });
}

}  // namespace

std::vector<PinnedBuffer> PinsThatAreApart(absl::Span<const LifetimeBuffer> buffers,
                                           absl::Span<const PinnedBuffer> pinned,
                                           int64_t alignment) {
  std::vector<size_t> order;  // of pins, by birth
  std::vector<bool> kept(pinned.size(), true);
  for (size_t i = 0; i < pinned.size(); ++i) {
    if (pinned[i].buffer < buffers.size()) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(buffers[pinned[a].buffer].lower, pinned[a].buffer) <
           std::pair(buffers[pinned[b].buffer].lower, pinned[b].buffer);
  });
  const auto end_of = [&](const PinnedBuffer& pin) {
    return pin.offset + AlignedSize(buffers[pin.buffer].size, alignment);
  };
  // Those kept are apart, so that of the living only the neighbours in the order of addresses can
  // overlap a further one; those whose time is over are met in the order of their deaths.
  std::map<int64_t, size_t> alive;
  std::set<std::pair<int64_t, int64_t>> deaths;  // upper, offset
  for (const size_t i : order) {
    const PinnedBuffer& pin = pinned[i];
    const LifetimeBuffer& buffer = buffers[pin.buffer];
    while (!deaths.empty() && deaths.begin()->first <= buffer.lower) {
      alive.erase(deaths.begin()->second);
      deaths.erase(deaths.begin());
    }
    const auto above = alive.lower_bound(pin.offset);
    const bool meets_above = above != alive.end() && above->first < end_of(pin);
    const bool meets_below =
        above != alive.begin() && end_of(pinned[std::prev(above)->second]) > pin.offset;
    if (buffer.size == 0) continue;
    kept[i] = !meets_above && !meets_below;
    if (!kept[i]) continue;
    alive.emplace(pin.offset, i);
    deaths.emplace(buffer.upper, pin.offset);
  }
  std::vector<PinnedBuffer> apart;
  for (size_t i = 0; i < pinned.size(); ++i) {
    if (kept[i]) apart.push_back(pinned[i]);
  }
  return apart;
}

Placement PlanAround(absl::Span<const LifetimeBuffer> buffers,
                     absl::Span<const PinnedBuffer> pinned, int64_t alignment) {
  if (pinned.empty()) return PlanGreedy(buffers, alignment);
  const SectionedProblem problem = MakeSections(buffers, alignment);
  const MappedVector<SectionItem>& items = problem.items;
  const MappedVector<int64_t> given = PinnedOffsets(problem, pinned, buffers.size(), alignment);
  MappedVector<int32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  const auto fixed_end =
      std::partition(order.begin(), order.end(), [&](int32_t i) { return given[i] != kNoOffset; });

  CheckPinsAreApart(items, given, absl::MakeConstSpan(order).first(fixed_end - order.begin()));

  ItemOffsets best, next;
  best.peak = std::numeric_limits<int64_t>::max();
  const auto attempts = [&](auto placed, int64_t work) {
    Around around(items, given, std::move(placed));
    for (int attempt = 0; attempt < 3; ++attempt) {
      SortForAttempt(attempt, items, fixed_end, order.end());
      if (!around.Plan(order, work, &next)) return;
      if (next.peak < best.peak) std::swap(best, next);
    }
  };
  int64_t work = std::numeric_limits<int64_t>::max();
  if (problem.has_many_items()) {
    best = PlanOnline(problem, given);
    work = WorkOfOrder(problem) <= kMostWorkOfOrders ? kMostWorkOfOrders : 0;
  }
  if (IntervalFit::IsFasterFor(problem)) {
    attempts(IntervalFit(problem), work);
  } else {
    attempts(FitList(), work);
  }
  return ToPlacement(problem, best.offsets, buffers.size(), alignment);
}

}  // namespace tidepool
