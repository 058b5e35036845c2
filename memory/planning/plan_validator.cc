#include "tidepool/memory/planning/plan_validator.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tidepool {
namespace {

struct Event {
  int64_t time;
  bool starts;  // Ends sort before starts: lifetimes are half open.
  size_t buffer;
};

std::string Describe(absl::Span<const LifetimeBuffer> buffers, const Placement& placement,
                     size_t i) {
  return absl::StrCat("buffer ", i, " (lifetime [", buffers[i].lower, ", ", buffers[i].upper,
                      "), bytes [", placement.offsets[i], ", ",
                      placement.offsets[i] + buffers[i].size, "))");
}

}  // namespace

std::optional<std::string> FindPlacementViolation(absl::Span<const LifetimeBuffer> buffers,
                                                  int64_t alignment, const Placement& placement) {
  if (alignment < 1) return absl::StrCat("alignment is ", alignment, ", expected at least 1");
  if (placement.offsets.size() != buffers.size()) {
    return absl::StrCat("placement has ", placement.offsets.size(), " offsets, expected one for ",
                        "each of ", buffers.size(), " buffers");
  }
  int64_t peak = 0;
  std::vector<Event> events;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int64_t offset = placement.offsets[i];
    if (offset < 0) {
      return absl::StrCat("buffer ", i, " has offset ", offset, ", expected >= 0");
    }
    if (offset % alignment != 0) {
      return absl::StrCat("buffer ", i, " has offset ", offset, ", expected a multiple of ",
                          alignment);
    }
    int64_t end = offset + buffers[i].size;
    if (end % alignment != 0) end += alignment - end % alignment;
    peak = std::max(peak, end);
    if (buffers[i].size > 0) {
      events.push_back({buffers[i].lower, true, i});
      events.push_back({buffers[i].upper, false, i});
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.time, a.starts, a.buffer) < std::tie(b.time, b.starts, b.buffer);
  });
  // The buffers alive now by offset; they are disjoint, so a new one need only look at the
  // neighbour on each side.
  std::map<int64_t, size_t> alive;
  for (const Event& event : events) {
    const int64_t offset = placement.offsets[event.buffer];
    if (!event.starts) {
      alive.erase(offset);
      continue;
    }
    const auto above = alive.lower_bound(offset);
    if (above != alive.end() && above->first < offset + buffers[event.buffer].size) {
      return absl::StrCat(Describe(buffers, placement, above->second), " overlaps ",
                          Describe(buffers, placement, event.buffer));
    }
    if (above != alive.begin()) {
      const auto below = std::prev(above);
      if (below->first + buffers[below->second].size > offset) {
        return absl::StrCat(Describe(buffers, placement, below->second), " overlaps ",
                            Describe(buffers, placement, event.buffer));
      }
    }
    alive.emplace_hint(above, offset, event.buffer);
  }
  if (placement.peak != peak) {
    return absl::StrCat("placement says peak ", placement.peak, ", its buffers reach ", peak);
  }
  return std::nullopt;
}

}  // namespace tidepool
