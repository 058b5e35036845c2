#include "tidepool/memory/planning/pinned_planner.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/fit_list.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/sections.h"

namespace tidepool {
namespace {

constexpr int64_t kFree = -1;

// By item in units of the alignment; kFree for those without a place.
std::vector<int64_t> PinnedOffsets(const SectionedProblem& problem,
                                   absl::Span<const PinnedBuffer> pinned, size_t num_buffers,
                                   int64_t alignment) {
  std::vector<int64_t> by_buffer(num_buffers, kFree);
  for (const PinnedBuffer& pin : pinned) {
    if (pin.buffer >= num_buffers || pin.offset < 0 || pin.offset % alignment != 0) {
      ThrowInvalidArgument(absl::StrCat("placement: buffer ", pin.buffer, " of ", num_buffers,
                                        " pinned at offset ", pin.offset,
                                        ", expected a multiple of ", alignment));
    }
    by_buffer[pin.buffer] = pin.offset / alignment;
  }
  std::vector<int64_t> by_item;
  by_item.reserve(problem.items.size());
  for (const SectionItem& item : problem.items) by_item.push_back(by_buffer[item.buffer]);
  return by_item;
}

void CheckPinsAreApart(const std::vector<SectionItem>& items, const std::vector<int64_t>& given,
                       absl::Span<const int32_t> fixed) {
  for (size_t k = 0; k < fixed.size(); ++k) {
    const SectionItem& a = items[fixed[k]];
    const int64_t at = given[fixed[k]];
    for (const int32_t other : fixed.first(k)) {
      const SectionItem& b = items[other];
      if (a.first < b.last && b.first < a.last && at < given[other] + b.size &&
          given[other] < at + a.size) {
        ThrowInvalidArgument(absl::StrCat("placement: pinned buffers ", b.buffer, " and ",
                                          a.buffer, " overlap while both are alive"));
      }
    }
  }
}

}  // namespace

Placement PlanAround(absl::Span<const LifetimeBuffer> buffers,
                     absl::Span<const PinnedBuffer> pinned, int64_t alignment) {
  if (pinned.empty()) return PlanGreedy(buffers, alignment);
  const SectionedProblem problem = MakeSections(buffers, alignment);
  const std::vector<SectionItem>& items = problem.items;
  const std::vector<int64_t> given =
      PinnedOffsets(problem, pinned, buffers.size(), alignment);
  std::vector<int32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  const auto fixed_end =
      std::partition(order.begin(), order.end(), [&](int32_t i) { return given[i] != kFree; });

  CheckPinsAreApart(items, given,
                    absl::MakeConstSpan(order).first(fixed_end - order.begin()));

  FitList placed;
  std::vector<int64_t> offsets(items.size());
  std::vector<int64_t> best;
  int64_t best_peak = std::numeric_limits<int64_t>::max();
  for (int attempt = 0; attempt < 3; ++attempt) {
    // By size, by size times lifetime, and latest first, which stacks nested lifetimes.
    std::sort(fixed_end, order.end(), [&](int32_t a, int32_t b) {
      auto key = [&](int32_t i) {
        const double size = static_cast<double>(items[i].size);
        const double width = items[i].last - items[i].first;
        if (attempt == 0) return std::tuple(-size, -width, i);
        if (attempt == 1) return std::tuple(-size * width, -size, i);
        return std::tuple(static_cast<double>(items[i].first), -width, i);
      };
      return key(a) < key(b);
    });
    placed.Clear();
    int64_t peak = 0;
    for (const int32_t i : order) {
      offsets[i] =
          given[i] != kFree ? given[i] : placed.FindOffset(items[i], FitList::Fit::kFirst);
      placed.Insert(items[i], offsets[i]);
      peak = std::max(peak, offsets[i] + items[i].size);
    }
    if (peak < best_peak) {
      best_peak = peak;
      best = offsets;
    }
  }
  return ToPlacement(problem, best, buffers.size(), alignment);
}

}  // namespace tidepool
