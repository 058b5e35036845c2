#include "tidepool/memory/planning/sections.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mapped_vector.h"

namespace tidepool {
namespace {

struct Event {
  int64_t time;
  bool starts;  // Ends sort before starts: lifetimes are half open.
  int32_t item;
};

}  // namespace

SectionedProblem MakeSections(absl::Span<const LifetimeBuffer> buffers, int64_t alignment) {
  CheckPlacementProblem(buffers, alignment);
  if (buffers.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    ThrowInvalidArgument(
        absl::StrCat("placement: ", buffers.size(), " buffers, expected less than 2^31"));
  }
  SectionedProblem problem;
  problem.items.reserve(buffers.size());
  MappedVector<Event> events;
  events.reserve(2 * buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int64_t units = AlignedSize(buffers[i].size, alignment) / alignment;
    if (units == 0) continue;
    const int32_t item = static_cast<int32_t>(problem.items.size());
    problem.items.push_back({0, 0, units, static_cast<int32_t>(i)});
    events.push_back({buffers[i].lower, true, item});
    events.push_back({buffers[i].upper, false, item});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.time, a.starts, a.item) < std::tie(b.time, b.starts, b.item);
  });
  // The set alive is maximal where an end follows a start.
  int64_t live = 0;
  bool growing = false;
  for (const Event& event : events) {
    SectionItem& item = problem.items[event.item];
    if (event.starts) {
      item.first = static_cast<int32_t>(problem.live.size());
      live += item.size;
    } else {
      if (growing) problem.live.push_back(live);
      item.last = static_cast<int32_t>(problem.live.size());
      live -= item.size;
    }
    growing = event.starts;
  }
  for (const int64_t sum : problem.live) problem.lower_bound = std::max(problem.lower_bound, sum);
  return problem;
}

Placement ToPlacement(const SectionedProblem& problem, absl::Span<const int64_t> item_offsets,
                      size_t num_buffers, int64_t alignment) {
  Placement placement;
  placement.offsets.assign(num_buffers, 0);
  placement.lower_bound = problem.lower_bound * alignment;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    const SectionItem& item = problem.items[i];
    placement.offsets[item.buffer] = item_offsets[i] * alignment;
    placement.peak = std::max(placement.peak, (item_offsets[i] + item.size) * alignment);
  }
  return placement;
}

}  // namespace tidepool
